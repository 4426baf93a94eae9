import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { signEvent } from '../../src/webhooks/signature.ts';

const ROOT = join(import.meta.dirname, '../..');
const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
const codeOf = (language: string): string => readme.split(`\`\`\`${language}\n`)[1]?.split('```')[0] ?? '';

const EXAMPLES = {
  js: {
    file: 'ours.mjs',
    after: `const cases = JSON.parse(process.argv[2]);
console.log(JSON.stringify(cases.map(([body, header, secret]) => isOurs(Buffer.from(body), header, secret))));`,
    command: process.execPath,
  },
  python: {
    file: 'ours.py',
    after: `import json, sys
print(json.dumps([is_ours(body.encode(), header, secret) for body, header, secret, _ in json.loads(sys.argv[1])]))`,
    command: 'python3',
  },
};

const now = Math.floor(Date.now() / 1000);
const signed = (secrets: string[], timestamp = now): string => signEvent({ body: '{"ü":1}', secrets, timestamp });
const CASES: [body: string, header: string | null, secret: string, ours: boolean][] = [
  ['{"ü":1}', signed(['whsec_a']), 'whsec_a', true],
  ['{"ü":1}', signed(['whsec_new', 'whsec_a']), 'whsec_a', true],
  ['{"ü":1}', signed(['whsec_a', 'whsec_old']), 'whsec_a', true],
  ['{"ü":1}', signed(['whsec_a'], now - 290), 'whsec_a', true],
  ['{"ü":2}', signed(['whsec_a']), 'whsec_a', false],
  ['{"ü":1}', signed(['whsec_b']), 'whsec_a', false],
  ['{"ü":1}', signed(['whsec_a'], now - 310), 'whsec_a', false],
  ['{"ü":1}', signed(['whsec_a'], now + 310), 'whsec_a', false],
  ['{"ü":1}', signed(['whsec_a']).replace(/t=\d+,/, ''), 'whsec_a', false],
  ['{"ü":1}', `t=${now}`, 'whsec_a', false],
  ['{"ü":1}', '', 'whsec_a', false],
  ['{"ü":1}', null, 'whsec_a', false],
];

describe('the README', () => {
  const isHere = ({ command }: { command: string }) => spawnSync(command, ['--version']).status === 0;
  const languages = Object.entries(EXAMPLES)
    .map(([language, example]) => ({ language, ...example }))
    .filter(isHere);
  test.for(languages)('its $language example accepts our signatures and refuses others', ({ language, ...example }) => {
    const { file, after, command } = example;
    const folder = mkdtempSync(join(tmpdir(), 'parley-readme-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    writeFileSync(join(folder, file), `${codeOf(language)}\n${after}\n`);

    const { stdout, stderr } = spawnSync(command, [file, JSON.stringify(CASES)], { cwd: folder, encoding: 'utf8' });

    expect(stderr).toBe('');
    expect(JSON.parse(stdout)).toEqual(CASES.map(([, , , ours]) => ours));
  });
});
