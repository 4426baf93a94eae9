import express from 'express';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliCompressSync, brotliDecompressSync } from 'node:zlib';
import { expect, onTestFinished, test, vi } from 'vitest';
import { dashboardRoutes } from '../../src/api/operator-routes.ts';
import type { Logger } from '../../src/platform/process/logger.ts';
import { anOperator } from '../support/operator-client.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

const SCRIPT = 'console.log("it runs");'.repeat(100);
const HTML = { Accept: 'text/html,application/xhtml+xml,*/*;q=0.8' };

/** A folder with the structure of the build's output. */
const aBuild = (): string => {
  const folder = mkdtempSync(join(tmpdir(), 'parley-dashboard-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, 'assets'));
  writeFileSync(
    join(folder, 'index.html'),
    '<script nonce="__CSP_NONCE__"></script><style nonce="__CSP_NONCE__"></style>',
  );
  writeFileSync(join(folder, '.weight'), 'not for the public');
  writeFileSync(join(folder, 'assets/index-a1B2c3D4.js'), SCRIPT);
  writeFileSync(join(folder, 'assets/index-a1B2c3D4.js.br'), brotliCompressSync(SCRIPT));
  writeFileSync(join(folder, 'assets/color-scheme.js'), SCRIPT);
  return folder;
};

const serve = async (folder: string, tls = false) => {
  const warn = vi.fn<(about: object, message: string) => void>();
  const app = express();
  app.disable('etag');
  app.use(dashboardRoutes({ folder, tls, logger: { warn } as unknown as Logger }));
  app.use((_req, res) => void res.status(404).json({ error: { code: 'not_found' } }));
  const server = app.listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await new Promise((resolve) => server.once('listening', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, warn };
};

const look = (url: string, init: RequestInit = {}) => fetch(url, { redirect: 'manual', headers: HTML, ...init });

/** Does not use `fetch`, because it would decompress the body. */
const rawly = (url: string, headers: Record<string, string>) =>
  new Promise<{ headers: NodeJS.Dict<string | string[]>; body: Buffer }>((resolve, reject) => {
    request(url, { headers }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('end', () => resolve({ headers: response.headers, body: Buffer.concat(chunks) }));
    })
      .on('error', reject)
      .end();
  });

test('every dashboard address serves the page, with a new nonce in its policy', async () => {
  const { url } = await serve(aBuild());

  const paths = ['/operator/', '/operator/sign-in', '/operator/assistants/7/deliveries/a%3Ab', '/operator/welcome'];
  const answers = await Promise.all(paths.map((path) => look(`${url}${path}`)));
  const texts = await Promise.all(answers.map((answer) => answer.text()));

  const policies = answers.map(({ headers }) => headers.get('content-security-policy') ?? '');
  const nonces = policies.map((policy) => /'nonce-([^']+)'/.exec(policy)?.[1] ?? '');
  expect(answers.map(({ status }) => status)).toEqual(paths.map(() => 200));
  expect(new Set(nonces).size).toBe(paths.length);
  expect(texts).toEqual(nonces.map((nonce) => `<script nonce="${nonce}"></script><style nonce="${nonce}"></style>`));
  expect(policies[0]?.replace(/nonce-[^']+/, 'nonce-…')).toBe(
    "default-src 'none';script-src 'self';style-src 'self' 'nonce-…';img-src 'self' data:;font-src 'self';" +
      "connect-src 'self';base-uri 'none';form-action 'self';frame-ancestors 'none';" +
      "require-trusted-types-for 'script';trusted-types default",
  );
  expect(answers[0]?.headers.get('cache-control')).toBe('no-store');
});

test('HSTS is sent only if callers use TLS', async () => {
  const plain = await look(`${(await serve(aBuild())).url}/operator/`);
  const secure = await look(`${(await serve(aBuild(), true)).url}/operator/`);

  expect(plain.headers.get('strict-transport-security')).toBeNull();
  expect(secure.headers.get('strict-transport-security')).toMatch(/^max-age=\d{8}/);
});

test('files with a hash in their name are cached for a year, and all are compressed', async () => {
  const { url } = await serve(aBuild());

  const hashed = await rawly(`${url}/operator/assets/index-a1B2c3D4.js`, { 'Accept-Encoding': 'gzip, br' });
  const plain = await rawly(`${url}/operator/assets/index-a1B2c3D4.js`, {});
  const named = await look(`${url}/operator/assets/color-scheme.js`);
  const hidden = await Promise.all(
    ['/operator/assets/../.weight', '/operator/assets/%2e%2e/.weight', '/operator/assets/nothing.js'].map((path) =>
      look(`${url}${path}`),
    ),
  );

  expect(hashed.headers).toMatchObject({
    'content-encoding': 'br',
    'content-type': 'text/javascript; charset=utf-8',
    'cache-control': 'public, max-age=31536000, immutable',
    vary: 'Accept-Encoding',
  });
  expect(brotliDecompressSync(hashed.body).toString()).toBe(SCRIPT);
  expect(plain.headers['content-encoding']).toBeUndefined();
  expect(plain.body.toString()).toBe(SCRIPT);
  expect(named.headers.get('cache-control')).toBe('public, max-age=3600');
  for (const answer of hidden) expect(await answer.text()).not.toContain('not for the public');
  expect(hidden.at(-1)?.status).toBe(404);
});

test('a missing build is logged once and reported by its pages', async () => {
  const { url, warn } = await serve(join(tmpdir(), 'parley-nothing-built'));

  const first = await look(`${url}/operator/`);
  const second = await look(`${url}/operator/account`);

  expect([first.status, second.status]).toEqual([404, 404]);
  expect(await first.text()).toContain('node scripts/run.js build dashboard');
  expect(warn).toHaveBeenCalledTimes(1);
});

test('the dashboard does not hide the API, the queues or other methods', async () => {
  const owner = await anOperator(stack);
  const headers = { ...HTML, Cookie: owner.cookie() ?? '' };

  const unknown = await look(`${stack.url}/operator/v1/nothing-here`, { headers });
  const queues = await look(`${stack.url}/operator/queues/`, { headers });
  const posted = await look(`${stack.url}/operator/account`, {
    method: 'POST',
    headers: { ...headers, Origin: stack.url },
  });
  const asJson = await look(`${stack.url}/operator/account`, { headers: { Accept: 'application/json' } });
  const home = await look(stack.url);
  const bare = await look(`${stack.url}/operator`);

  expect([unknown.status, posted.status, asJson.status]).toEqual([404, 404, 404]);
  for (const answer of [unknown, posted, asJson])
    expect(await answer.json()).toMatchObject({ error: { code: 'not_found' } });
  expect(await queues.text()).toContain('Parley queues');
  expect([home, bare].map(({ status, headers: given }) => [status, given.get('location')])).toEqual([
    [302, '/operator/'],
    [302, '/operator/'],
  ]);
});

test('over plain HTTP no page redirects the browser to https', async () => {
  const pages = ['/operator/', '/operator/queues', '/openapi.json', '/healthz'];
  const answers = await Promise.all(pages.map((path) => look(`${stack.url}${path}`)));

  for (const { headers } of answers) {
    expect(headers.get('strict-transport-security')).toBeNull();
    expect(headers.get('content-security-policy') ?? '').not.toContain('upgrade-insecure-requests');
  }
});
