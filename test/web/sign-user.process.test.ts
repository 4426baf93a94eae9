import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { isLong } from '../support/size.ts';
import { signUser } from '../support/visitor.ts';

const PAGE = readFileSync(join(import.meta.dirname, '../../docs/widget.md'), 'utf8');
const [ID, SECRET, EXPIRES] = ['Zoë.42', 'wsec_test', 1_800_000_000] as const;

/** The example of the page in this language. */
const exampleIn = (language: string): string => {
  const [, code] = new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``).exec(PAGE) ?? [];
  if (code === undefined) throw new Error(`the page has no example in ${language}`);
  return code;
};

/** What prints the signature, by language, and the command that runs it. */
const RUNS = {
  js: {
    file: 'sign.mjs',
    code: () => `${exampleIn('js')}\nconsole.log(signUser('${ID}', '${SECRET}', ${EXPIRES}).signature);`,
    command: [process.execPath],
  },
  python: {
    file: 'sign.py',
    code: () => `${exampleIn('python')}\nprint(sign_user("${ID}", "${SECRET}", ${EXPIRES})["signature"])`,
    command: ['python3'],
  },
  php: {
    file: 'sign.php',
    code: () => `<?php\n${exampleIn('php')}\necho sign_user('${ID}', '${SECRET}', ${EXPIRES})['signature'];`,
    command: ['php'],
  },
  go: {
    file: 'sign.go',
    code: () => `package main
import ("crypto/hmac"; "crypto/sha256"; "encoding/hex"; "fmt")
${exampleIn('go')}
func main() { fmt.Println(SignUser("${ID}", "${SECRET}", ${EXPIRES})) }`,
    command: ['go', 'run'],
  },
};

const isThere = (command: string): boolean =>
  spawnSync(command, [command === 'go' ? 'version' : '--version'], { stdio: 'ignore' }).status === 0;

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'parley-sign-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('the page names the right signature', () => {
  expect(PAGE).toContain(signUser(SECRET, 'user-42', EXPIRES).signature);
});

for (const [language, { file, code, command }] of Object.entries(RUNS)) {
  const [program = '', ...options] = command;
  // Compiling takes many seconds, so the Go example runs in the long suite only.
  if (!isThere(program) || (language === 'go' && !isLong)) continue;
  test(`the ${language} example signs as the service expects`, () => {
    writeFileSync(join(folder, file), code());

    const run = spawnSync(program, [...options, file], { cwd: folder, encoding: 'utf8', timeout: 120_000 });

    expect([run.stderr, run.stdout.trim()]).toEqual(['', signUser(SECRET, ID, EXPIRES).signature]);
  });
}
