import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { newWebhookSecret, signEvent } from '../../src/webhooks/signature.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../../scripts/services.ts';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '../..');
const TSC = join(ROOT, 'node_modules/typescript/bin/tsc');
const TIMEOUT_MS = 120_000;

const body = '{"event":"message.received","payload":{"text":"ü"}}';
const secret = newWebhookSecret();
const timestamp = Math.floor(Date.now() / 1000);
const header = signEvent({ body, secrets: [secret], timestamp });

let folder = '';
let project = '';

/**
 * Runs npm: the npm that started this run, otherwise the one on PATH. It runs offline, without the settings of this
 * project.
 */
const npm = (args: string[], cwd: string) => {
  const started = process.env['npm_execpath'];
  const inherited = Object.entries(process.env).filter(([name]) => !name.toLowerCase().startsWith('npm_'));
  const env = {
    ...Object.fromEntries(inherited),
    PATH: `${dirname(process.execPath)}:${process.env['PATH'] ?? ''}`,
    npm_config_cache: join(folder, 'cache'),
    npm_config_offline: 'true',
    npm_config_update_notifier: 'false',
  };
  return started?.endsWith('npm-cli.js')
    ? run(process.execPath, [started, ...args], { cwd, env })
    : run('npm', args, { cwd, env });
};

const write = (name: string, text: string): Promise<void> => writeFile(join(project, name), text);

/** Runs a customer's file with the Node of this test. */
const runFile = async (name: string, text: string): Promise<unknown> => {
  await write(name, text);
  const { stdout, stderr } = await run(process.execPath, [name, body, header, secret], { cwd: project });
  expect(stderr).toBe('');
  return JSON.parse(stdout);
};

const USE = `const [body, header, secret] = process.argv.slice(2);
console.log(JSON.stringify([verifyWebhook(body, header, secret), verifyWebhook(body + ' ', header, [secret])]));`;
const VERDICTS = [
  { ok: true, timestamp },
  { ok: false, reason: 'mismatch' },
];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'parley-client-'));
  project = join(folder, 'shop');
  await mkdir(project);
  await npm(['pack', join(ROOT, 'packages/client'), '--pack-destination', folder], folder);
  const tarball = (await readdir(folder)).find((name) => name.endsWith('.tgz'));
  await write('package.json', '{ "name": "shop", "private": true }');
  await npm(['install', '--no-audit', '--no-fund', join(folder, tarball ?? 'no tarball')], project);
}, TIMEOUT_MS);

afterAll(() => rm(folder, { recursive: true, force: true }));

describe('@parley/client, packed and installed into its own folder', () => {
  test('contains the build and nothing else', async () => {
    const files = await readdir(join(project, 'node_modules/@parley/client'), { recursive: true });

    expect(files.sort()).toEqual(
      ['LICENSE', 'README.md', 'dist', 'dist/verify-webhook.d.ts', 'dist/verify-webhook.js', 'package.json'].sort(),
    );
  });

  test('verifies an event from an ES module', async () => {
    expect(await runFile('use.mjs', `import { verifyWebhook } from '@parley/client';\n${USE}`)).toEqual(VERDICTS);
  });

  test('verifies an event from CommonJS', async () => {
    expect(await runFile('use.cjs', `const { verifyWebhook } = require('@parley/client');\n${USE}`)).toEqual(VERDICTS);
  });

  test('verifies an event from TypeScript that Node runs as it is', async () => {
    const text = `import { verifyWebhook, type WebhookVerdict } from '@parley/client';
const [body = '', header, secret = ''] = process.argv.slice(2);
const verdicts: WebhookVerdict[] = [verifyWebhook(body, header, secret), verifyWebhook(body + ' ', header, [secret])];
console.log(JSON.stringify(verdicts));`;

    expect(await runFile('use.mts', text)).toEqual(VERDICTS);
  });

  test.each([
    { file: 'types.mts', module: 'nodenext', moduleResolution: 'nodenext' },
    { file: 'types.cts', module: 'nodenext', moduleResolution: 'nodenext' },
    { file: 'types.ts', module: 'esnext', moduleResolution: 'bundler' },
  ])('has types for $file under $moduleResolution', async ({ file, ...options }) => {
    await write(
      file,
      `import { verifyWebhook, type VerifyOptions, type WebhookRefusal } from '@parley/client';
const options: VerifyOptions = { toleranceSeconds: 60 };
const verdict = verifyWebhook(new Uint8Array(), undefined, ['a', 'b'], options);
export const answer: number | WebhookRefusal = verdict.ok ? verdict.timestamp : verdict.reason;
// @ts-expect-error a secret is text
verifyWebhook('', '', 7);
`,
    );
    const compilerOptions = { ...options, target: 'es2022', strict: true, noEmit: true, types: [] };
    await write('tsconfig.json', JSON.stringify({ compilerOptions, files: [file] }));

    const checked = await run(process.execPath, [TSC, '-p', project], { cwd: project }).catch(
      (failure: { stdout: string }) => failure,
    );

    expect(checked.stdout).toBe('');
  });

  test('works as its README shows', async () => {
    const readme = await readFile(join(project, 'node_modules/@parley/client/README.md'), 'utf8');
    const port = await freePort();
    await write('server.mjs', readme.split('```js\n')[1]?.split('```')[0] ?? '');
    const env = { ...process.env, PORT: String(port), WEBHOOK_SECRET: secret };
    const server = spawn(process.execPath, ['server.mjs'], { cwd: project, env, stdio: 'inherit' });
    onTestFinished(async () => {
      const ended = once(server, 'exit');
      if (server.kill('SIGKILL')) await ended;
    });
    const post = (signature: string) =>
      fetch(`http://127.0.0.1:${port}`, { method: 'POST', body, headers: { 'X-Factory-Signature': signature } });

    const accepted = await eventually(() => post(header));
    const refused = await post(header.replace('v1=', 'v1=0'));

    expect(accepted.status).toBe(204);
    expect({ status: refused.status, text: await refused.text() }).toEqual({ status: 401, text: 'mismatch' });
  });
});
