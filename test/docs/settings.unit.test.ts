import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseEnv } from 'node:util';
import { expect, test } from 'vitest';
import * as z from 'zod';
import { Environment, readConfig } from '../../src/platform/process/config.ts';
import { generatedPartOf, tableOf } from '../support/generated-page.ts';

const Described = z.object({
  group: z.string(),
  description: z.string(),
  otherwise: z.string().optional(),
  values: z.string().optional(),
  enum: z.array(z.string()).optional(),
  minimum: z.number().optional(),
  maximum: z.number().optional(),
  format: z.string().optional(),
});
const settings = z
  .record(z.string(), Described)
  .parse(z.toJSONSchema(Environment, { io: 'input', unrepresentable: 'any' }).properties);
const defaults = readConfig({}) as Record<string, unknown>;

const valuesOf = ({ values, enum: names, minimum, maximum, format }: z.infer<typeof Described>): string =>
  values ??
  names?.map((name) => `\`${name}\``).join(', ') ??
  (minimum === undefined ? (format === 'uri' ? 'URL' : 'text') : `${minimum}–${maximum?.toLocaleString('en')}`);

const defaultOf = (name: string): string =>
  defaults[name] === undefined ? '–' : `\`${defaults[name] as string | number | boolean}\``;

test('docs/settings.md shows every setting as the schema describes it', () => {
  const groups = Map.groupBy(Object.entries(settings), ([, { group }]) => group);
  const sections = [...groups].map(([group, members]) => {
    const rows = members.map(([name, one]) => [
      `\`${name}\``,
      one.otherwise ?? defaultOf(name),
      valuesOf(one),
      one.description,
    ]);
    return `## ${group}\n\n${tableOf(['variable', 'default', 'values', 'meaning'], rows)}`;
  });

  const generated = sections.join('\n\n');
  expect(generatedPartOf('docs/settings.md', generated), 'run this test with UPDATE=1').toBe(generated);
});

test('.env.example names every setting with its default, and no other', () => {
  const example = parseEnv(readFileSync(join(import.meta.dirname, '../../.env.example'), 'utf8'));

  expect(Object.keys(example).sort()).toEqual(Object.keys(settings).sort());
  expect(readConfig(example)).toEqual(readConfig({}));
});
