import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { signEvent } from '../../src/events/signature.ts';

const ROOT = join(import.meta.dirname, '../..');
const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
const [, example = ''] = /```js\n(.*?)```/s.exec(readme) ?? [];
const JUDGE = `const cases = JSON.parse(process.argv[2]);
console.log(JSON.stringify(cases.map(([body, header, secret]) => isOurs(Buffer.from(body), header, secret))));`;

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

test('the example of the README accepts our signatures and refuses others', () => {
  const folder = mkdtempSync(join(tmpdir(), 'parley-readme-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, 'ours.mjs'), `${example}\n${JUDGE}\n`);

  const run = spawnSync(process.execPath, ['ours.mjs', JSON.stringify(CASES)], { cwd: folder, encoding: 'utf8' });

  expect(run.stderr).toBe('');
  expect(JSON.parse(run.stdout)).toEqual(CASES.map(([, , , ours]) => ours));
});
