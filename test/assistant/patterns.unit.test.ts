import { globSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { parseAst } from 'vite';
import { LARGEST, shortest } from '../support/hostile-texts.ts';

const MOST_MS = 5;

/** Files whose patterns are not linear, with the length to which the file cuts a text before it uses the patterns. */
const GIVEN: Record<string, number> = { 'packages/understanding/src/retrieval/human-request.ts': 400 };

type Pattern = { file: string; source: string; flags: string };

const isNode = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null;

const patternsIn = (file: string): Pattern[] => {
  const found: Pattern[] = [];
  const walk = (node: unknown): void => {
    if (!isNode(node)) return;
    if (isNode(node.regex)) found.push({ file, source: String(node.regex.pattern), flags: String(node.regex.flags) });
    for (const value of Object.values(node)) walk(value);
  };
  walk(parseAst(readFileSync(file, 'utf8'), { lang: file.endsWith('x') ? 'tsx' : 'ts' }));
  return found;
};

/** All code that reads text from outside: headers, bodies, provider replies, imported files, text on pages. */
const PLACES = ['src/**/*.ts', 'workers/**/*.ts', 'packages/*/src/**/*.ts', 'scripts/{admin,quickstart}/**/*.ts'];
const patterns = globSync([...PLACES, 'dashboard/src/**/*.{ts,tsx}']).flatMap(patternsIn);

const BITS = ['a', ' ', '.', '/', '[', '](', '[](', '1', '-', '\n', ',', '@', '\u0300', '中', 'а'];
const ENDS = ['!', '\n', ' '];

/**
 * The literal text in a pattern. Repeating it makes an input where the pattern starts to match at many positions and
 * fails at each one.
 */
const spelledIn = (source: string): string[] => {
  const spelled = source.replace(/\\[bBdDwWsSpP](?:\{[^}]*\})?|\(\?(?:<?[=!]|:)/g, '|').split(/[|()[\]*+?{}^$]/);
  return [...new Set(spelled.map((part) => part.replace(/\\(.)/g, '$1')).filter((part) => part !== ''))].slice(0, 6);
};

const textsFor = (source: string, length: number): string[] => {
  const own = spelledIn(source);
  const pieces = [...BITS, ...own, ...own.slice(0, 3).flatMap((part) => ['a', ' ', '1'].map((bit) => part + bit))];
  return pieces.flatMap((piece) =>
    ['', ...own.slice(0, 1)].flatMap((beginning) =>
      ENDS.map((end) => beginning + piece.repeat(length / piece.length) + end),
    ),
  );
};

test('the product’s patterns are found', () => {
  expect(patterns.length).toBeGreaterThan(150);
});

const named = patterns.map((pattern): [string, Pattern] => [`${pattern.file}: /${pattern.source}/`, pattern]);

test.each(named)('%s is linear', (_, { file, source, flags }) => {
  const pattern = new RegExp(source, flags.includes('g') ? flags : `${flags}g`);
  const given = GIVEN[file] ?? LARGEST;
  // Short texts come first, because a cubic pattern would not finish the long ones.
  for (const text of [...textsFor(source, given / 16), ...textsFor(source, given)]) {
    const took = shortest(() => text.replace(pattern, ''), MOST_MS);
    expect(took, `${JSON.stringify(text.slice(0, 40))}… took ${took} ms`).toBeLessThanOrEqual(MOST_MS);
  }
});
