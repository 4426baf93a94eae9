import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { launch } from '../kit/processes.ts';
import { freePort } from '../../scripts/services.ts';
import { newWebhookSecret, signEvent } from '../../src/events/signature.ts';
import { answer, hangUp, openBrokenService, refuse, type Script, stream } from '../support/broken-service.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openReceiver } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

type Client = typeof import('../../packages/client/src/parley.ts');

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '../..');
const TSC = join(ROOT, 'node_modules/typescript/bin/tsc');
const TIMEOUT_MS = 120_000;

const stack = useStack();
const body = '{"event":"conversation.created","payload":{"session_id":"ü"}}';
const secret = newWebhookSecret();
const timestamp = Math.floor(Date.now() / 1000);
const header = signEvent({ body, secrets: [secret], timestamp });

let folder = '';
let project = '';
/** The client, as it is in the project that installed its archive. */
let client: Client;

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
const installed = (name: string): string => join(project, 'node_modules/@parley/client', name);

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'parley-client-'));
  project = join(folder, 'shop');
  await mkdir(project);
  await npm(['pack', join(ROOT, 'packages/client'), '--pack-destination', folder], folder);
  const tarball = (await readdir(folder)).find((name) => name.endsWith('.tgz'));
  await write('package.json', '{ "name": "shop", "private": true }');
  await npm(['install', '--no-audit', '--no-fund', join(folder, tarball ?? 'no tarball')], project);
  client = (await import(installed('dist/parley.js'))) as Client;
}, TIMEOUT_MS);

afterAll(() => rm(folder, { recursive: true, force: true }));

const collect = async <Item>(items: AsyncIterable<Item>): Promise<Item[]> => {
  const all: Item[] = [];
  for await (const item of items) all.push(item);
  return all;
};

/** The examples of the installed README, each a program of its own. */
const readExamples = async (): Promise<string[]> => {
  const readme = await readFile(installed('README.md'), 'utf8');
  return [...readme.matchAll(/```ts\n(.*?)```/gs)].map(([, code = '']) => code);
};

describe('the archive', () => {
  test('contains the build and nothing else', async () => {
    const files = await readdir(join(project, 'node_modules/@parley/client'), { recursive: true });

    const built = ['parley', 'send-queue', 'types', 'verify-webhook'].flatMap((name) => [
      `dist/${name}.d.ts`,
      `dist/${name}.js`,
    ]);
    expect(files.sort()).toEqual(['LICENSE', 'README.md', 'dist', ...built, 'package.json'].sort());
  });

  test('has at most 8 kB of compressed code', async () => {
    const dist = installed('dist');
    const names = (await readdir(dist)).filter((name) => name.endsWith('.js'));
    const texts = await Promise.all(names.map((name) => readFile(join(dist, name))));

    expect(gzipSync(Buffer.concat(texts)).length).toBeLessThanOrEqual(8_000);
  });

  test('is loaded by ES modules and by CommonJS', async () => {
    const use = `const verdict = verifyWebhook(${JSON.stringify(body)}, '${header}', '${secret}');
console.log(verdict.ok, typeof Parley);`;
    await write('use.mjs', `import { Parley, verifyWebhook } from '@parley/client';\n${use}`);
    await write('use.cjs', `const { Parley, verifyWebhook } = require('@parley/client');\n${use}`);

    const outputs = await Promise.all(
      ['use.mjs', 'use.cjs'].map((file) => run(process.execPath, [file], { cwd: project })),
    );

    for (const { stdout, stderr } of outputs) expect([stdout, stderr]).toEqual(['true function\n', '']);
  });

  test('has types for each way of resolving modules, and the README’s examples agree with them', async () => {
    const use = `import { verifyWebhook, type ParleyEvent, type VerifyOptions, type WebhookRefusal } from '@parley/client';
const options: VerifyOptions = { toleranceSeconds: 60 };
const verdict = verifyWebhook(new Uint8Array(), undefined, ['a', 'b'], options);
export const answer: number | WebhookRefusal = verdict.ok ? verdict.timestamp : verdict.reason;
export const sessionOf = (one: ParleyEvent) => one.event === 'conversation.created' && one.payload.session_id;
// @ts-expect-error a secret is text
verifyWebhook('', '', 7);
`;
    const examples = await readExamples();
    await Promise.all([
      ...['types.mts', 'types.cts', 'types.ts'].map((file) => write(file, use)),
      ...examples.map((code, at) => write(`example-${at}.mts`, code)),
    ]);
    const types = join(ROOT, 'node_modules/@types');
    const strict = { files: ['types.mts', 'types.cts'], module: 'nodenext' };
    const written = examples.map((_, at) => `example-${at}.mts`);
    const ofNode = { module: 'nodenext', types: ['node'], typeRoots: [types] };
    const all: { files: string[]; module: string; moduleResolution?: string }[] = sized({
      everyday: [{ ...ofNode, files: [...strict.files, ...written] }], // each run of the compiler takes seconds
      long: [
        strict,
        { files: ['types.ts'], module: 'esnext', moduleResolution: 'bundler' },
        { ...ofNode, files: written },
      ],
    });

    const checks = all.map(async ({ files, ...options }, at) => {
      const compilerOptions = { types: [], ...options, target: 'es2022', strict: true, noEmit: true };
      await write(`tsconfig-${at}.json`, JSON.stringify({ compilerOptions, files }));
      return run(process.execPath, [TSC, '-p', `tsconfig-${at}.json`], { cwd: project }).catch(
        (failure: { stdout: string }) => failure,
      );
    });

    expect(examples.length).toBeGreaterThan(5);
    for (const check of checks) expect((await check).stdout).toBe('');
  });
});

describe('against the running service', () => {
  test('a turn is sent, streamed, and fetched later', async () => {
    const { apiKey } = await anAssistant(stack);
    const parley = new client.Parley({ url: `${stack.url}/`, apiKey });
    const session_id = 'visitor-1';
    const message = 'When are you open?';

    const first = await parley.chat({ session_id, message }, { include: 'sources' });
    const again = await parley.chat({ session_id, message });
    const parts = await collect(parley.stream({ session_id, message }));
    const { turnId } = await parley.send({ session_id, message });
    const turn = await parley.waitForTurn(turnId);

    expect([first.reply, first.sources]).toEqual(['We are open from 9 to 5.', []]);
    expect(again.messageId, 'each call has its own key').not.toBe(first.messageId);
    expect(parts.map(({ event }) => event)).toEqual(['accepted', 'delta', 'message']);
    expect(parts.slice(1)).toMatchObject([
      { text: first.reply, reply: first.reply, attempt: 1 },
      { reply: first.reply, conversationId: first.conversationId },
    ]);
    expect([turn.status, turn.reply]).toEqual(['answered', first.reply]);
  });

  test('a conversation is read, followed, changed, listed and erased', async () => {
    const { apiKey } = await anAssistant(stack);
    const parley = new client.Parley({ url: stack.url, apiKey });
    const { conversationId } = await parley.chat({ session_id: 'visitor-2', message: 'When are you open?' });

    const { attributes } = await parley.setAttributes(conversationId, { plan: 'pro', old: null });
    const escalation = await parley.escalate(conversationId, { reason: 'angry', lead_score: 80 });
    const followed: string[] = [];
    for await (const { seq, role } of parley.follow(conversationId, 1)) {
      followed.push(`${seq} ${role}`);
      if (role === 'operator') break;
      await stack.service.conversations.transitions.replyAsOperator({ conversationId }, 'I am here.');
    }
    const whole = await collect(parley.messages(conversationId, { limit: 1 }));
    const page = await parley.conversation(conversationId, { after_seq: 2 });
    const listed = await collect(parley.conversations({ session_id: 'visitor-2' }));
    await parley.erase(conversationId);

    expect([attributes, escalation.reason, escalation.leadScore]).toEqual([{ plan: 'pro' }, 'angry', 80]);
    expect(followed).toEqual(['2 system', '3 operator']);
    expect(whole.map(({ role }) => role)).toEqual(['user', 'assistant', 'system', 'operator']);
    expect([page.status, page.messages.map(({ content }) => content)]).toEqual(['escalated', ['I am here.']]);
    expect(listed.map((one) => one.conversationId)).toEqual([conversationId]);
    const gone = await parley.conversation(conversationId).catch((cause: unknown) => cause);
    expect(gone).toBeInstanceOf(client.ParleyError);
    expect(gone).toMatchObject({ code: 'not_found', status: 404, requestId: expect.stringMatching(/./) });
  });

  test('errors name the field, and a used key is told apart', async () => {
    const { apiKey } = await anAssistant(stack, { limitPerMinute: 2 });
    const parley = new client.Parley({ url: stack.url, apiKey });
    const idempotencyKey = 'order-7';

    const wrong = parley.chat({ session_id: 'visitor-3', message: ' ' }, { idempotencyKey });
    await expect(wrong).rejects.toMatchObject({ code: 'validation_failed', status: 422, field: 'message' });
    await parley.chat({ session_id: 'visitor-3', message: 'one' }, { idempotencyKey });
    const late = parley.chat({ session_id: 'visitor-3', message: 'two' }, { timeoutMs: 900 });

    await expect(late, 'the wait would exceed the call').rejects.toMatchObject({ code: 'rate_limited', status: 429 });
    await expect(late).rejects.toHaveProperty('retryAfter', expect.any(Number));
    const stranger = new client.Parley({ url: stack.url, apiKey: 'sk_unknown' }).turn('x');
    await expect(stranger).rejects.toMatchObject({ code: 'invalid_api_key', status: 401 });
  });

  test('a queue keeps the order of each session, and waits when the limit of the key is reached', async () => {
    const { apiKey, history } = await anAssistant(stack, { limitPerMinute: 4 });
    const keys: string[] = [];
    const parley = new client.Parley({
      url: stack.url,
      apiKey,
      retries: 0,
      fetch: async (url, init) => {
        keys.push(new Headers(init?.headers).get('idempotency-key') ?? '');
        const response = await fetch(url, init);
        if (response.status !== 429) return response;
        // The window of the key ends, and the service says so.
        const { redis } = stack.service;
        for (const limit of await redis.keys(`${stack.env['REDIS_PREFIX']}:limit*`)) await redis.del(limit);
        return new Response(response.body, { status: 429, headers: { 'Retry-After': '1' } });
      },
    });
    const queue = new client.SendQueue(parley, { perMinute: 100, sessions: 2, most: 6 });
    const words = ['one', 'two', 'three'];
    const sends = words.flatMap((message) =>
      ['queue-1', 'queue-2'].map((session_id) => queue.send({ session_id, message })),
    );
    await expect(queue.send({ session_id: 'queue-3', message: 'more' })).rejects.toBeInstanceOf(client.QueueFullError);

    const [first, second] = await Promise.all(sends);
    await queue.idle();

    expect(queue.size).toBe(0);
    expect(new Set(keys).size, 'what was refused is sent again under its key').toBe(6);
    expect(keys.length).toBeGreaterThan(6);
    for (const reply of [first, second]) {
      const { body: read } = await history(reply?.conversationId ?? '');
      expect(read.messages.filter(({ role }) => role === 'user').map(({ content }) => content)).toEqual(words);
    }
  });

  test('a queue begins no more messages in a minute than the key may', async () => {
    vi.useFakeTimers({ toFake: ['Date', 'performance', 'setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const begun: number[] = [];
    const parley = new client.Parley({
      url: 'http://127.0.0.1:9',
      apiKey: 'sk_none',
      fetch: async () => {
        begun.push(Date.now());
        return Response.json({ reply: 'Yes.' });
      },
    });
    const queue = new client.SendQueue(parley, { perMinute: 10, sessions: 3 });
    const startedAt = Date.now();
    for (let nth = 0; nth < 25; nth += 1) void queue.send({ session_id: `visitor-${nth % 5}`, message: `${nth}` });

    await vi.advanceTimersByTimeAsync(130_000);

    expect(queue.size).toBe(0);
    const minutes = begun.map((at) => Math.floor((at - startedAt) / 60_000));
    expect(minutes.map((minute) => minute)).toEqual([
      ...Array<number>(10).fill(0),
      ...Array<number>(10).fill(1),
      ...Array<number>(5).fill(2),
    ]);
  });

  test('a message that is aborted leaves a queue at once, and the clock may be set meanwhile', async () => {
    vi.useFakeTimers({ toFake: ['Date', 'performance', 'setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const sent: string[] = [];
    const parley = new client.Parley({
      url: 'http://127.0.0.1:9',
      apiKey: 'sk_none',
      fetch: async (_url, init) => {
        sent.push((JSON.parse(init?.body as string) as { message: string }).message);
        return Response.json({ reply: 'Yes.' });
      },
    });
    const queue = new client.SendQueue(parley, { perMinute: 1 });
    const stop = new AbortController();
    const { signal } = stop;
    const send = (message: string, options = {}) => queue.send({ session_id: 'visitor-1', message }, options);
    const [first, second, third] = [send('one'), send('two', { signal }), send('three')];
    await first;

    stop.abort(null);

    await expect(second).rejects.toBeNull();
    expect(queue.size).toBe(1);
    vi.setSystemTime(Date.now() - 3_600_000);
    await vi.advanceTimersByTimeAsync(63_000);
    await third;
    await queue.idle();
    expect(sent).toEqual(['one', 'three']);
    await expect(send('four', { signal })).rejects.toBeNull();
  });

  test('events of the service are verified and typed', async () => {
    const { assistantId, apiKey } = await anAssistant(stack);
    const receiver = await openReceiver();
    const { endpoint, secret: known } = await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
    expect(endpoint.url).toBe(receiver.url);
    const parley = new client.Parley({ url: stack.url, apiKey });
    await parley.chat({ session_id: 'visitor-4', message: 'Hello' });
    const [one] = await receiver.waitFor((all) => all.length > 0);

    const verdict = client.verifyWebhook(one?.body ?? '', one?.headers['x-factory-signature'], known);
    const event = client.parseEvent(one?.body ?? '');
    const [listed] = (await parley.events({ wait: 20 })).events;

    expect([verdict.ok, event.event === 'conversation.created' && event.payload.session_id]).toEqual([
      true,
      'visitor-4',
    ]);
    expect(client.parseEvent(listed?.envelope ?? {})).toEqual(event);
  });

  test('every example of the README runs', async () => {
    const { apiKey } = await anAssistant(stack);
    const port = await freePort();
    const env = {
      ...process.env,
      PARLEY_URL: stack.url,
      PARLEY_KEY: apiKey,
      WEBHOOK_SECRET: secret,
      PORT: String(port),
    };
    const examples = await readExamples();
    const server = examples.findIndex((code) => code.includes('createServer'));
    await Promise.all(examples.map((code, at) => write(`run-${at}.mts`, code)));
    const receiver = launch(process.execPath, [`run-${server}.mts`], { cwd: project, env });
    onTestFinished(() => receiver.kill());
    const post = (signature: string) =>
      fetch(`http://127.0.0.1:${port}`, { method: 'POST', body, headers: { 'X-Factory-Signature': signature } });

    const outputs = examples.map(async (_, at) =>
      at === server ? '' : (await run(process.execPath, [`run-${at}.mts`], { cwd: project, env })).stdout,
    );

    const says = await Promise.all(outputs);
    const reply = 'We are open from 9 to 5.';
    expect(says.map((text) => text.includes(reply))).toEqual([true, true, true, true, true, false, false]);
    expect(says[4]).toMatch(
      /^user When.*\nassistant.*\nsystem .*\n1 user\n1 assistant\n2 system\n.*visitor-45 escalated/s,
    );
    expect(says.at(-1)).toMatch(/^validation_failed 422 message /);
    expect((await eventually(() => post(header))).status).toBe(204);
    const refused = await post(header.replace('v1=', 'v1=0'));
    expect([refused.status, await refused.text()]).toEqual([401, 'mismatch']);
  });
});

describe('the receivers to copy', () => {
  const read = (name: string) => readFile(join(ROOT, 'examples/receivers', name), 'utf8');
  const post = (url: string, signature: string) =>
    fetch(url, {
      method: 'POST',
      body,
      headers: { 'X-Factory-Signature': signature, 'Content-Type': 'application/json' },
    });
  const refused = header.replace('v1=', 'v1=0');

  test.for(sized({ everyday: ['express'], long: ['express', 'fastify'] }))(
    '%s accepts our events and refuses others',
    async (name) => {
      const port = await freePort();
      await symlink(join(ROOT, 'node_modules', name), join(project, 'node_modules', name));
      await write(`${name}.mjs`, await read(`${name}.mjs`));
      const env = { ...process.env, WEBHOOK_SECRET: secret, PORT: String(port) };
      const { output, kill } = launch(process.execPath, [`${name}.mjs`], { cwd: project, env });
      onTestFinished(() => kill());
      const url = `http://127.0.0.1:${port}/parley`;

      expect((await eventually(() => post(url, header))).status).toBe(204);
      expect((await post(url, refused)).status).toBe(401);
      await eventually(() => expect(output.stdout).toContain('ü is'));
    },
  );

  test('the route handler of Next.js accepts our events and refuses others', async () => {
    await write('nextjs.mjs', await read('nextjs.mjs'));
    const { POST } = (await import(join(project, 'nextjs.mjs'))) as { POST: (request: Request) => Promise<Response> };
    const ask = (signature: string) =>
      POST(new Request('http://x/parley', { method: 'POST', body, headers: { 'X-Factory-Signature': signature } }));
    vi.stubEnv('WEBHOOK_SECRET', secret);
    const log = vi.spyOn(console, 'log').mockReturnValue();
    onTestFinished(() => vi.unstubAllEnvs().restoreAllMocks() && undefined);

    expect([(await ask(header)).status, (await ask(refused)).status]).toEqual([204, 401]);
    expect(log).toHaveBeenCalledWith('ü', 'is', undefined);
  });
});

const REPLY = { reply: 'Hello', conversationId: 'c', messageId: 'm' };
const TURN = { session_id: 'a', message: 'b' };
const event = (name: string, data: unknown): string => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
const delta = (text: string, attempt = 1): string => event('delta', { text, attempt });

const against = async (scripts: Script[], options: object = {}) => {
  const service = await openBrokenService(scripts);
  onTestFinished(service.close);
  return { ...service, parley: new client.Parley({ url: service.url, apiKey: 'sk_x', ...options }) };
};

describe('against a service that breaks', () => {
  test('a send is repeated with one key, after 5xx and Retry-After', async () => {
    const { parley, sent } = await against([
      refuse(500, 'reply_timeout'),
      refuse(503, 'unavailable', { 'Retry-After': '1' }),
      answer(200, REPLY),
    ]);
    const since = performance.now();

    expect(await parley.chat(TURN)).toEqual(REPLY);

    expect(performance.now() - since).toBeGreaterThan(990);
    expect(sent).toHaveLength(3);
    expect(new Set(sent.map(({ key }) => key)).size).toBe(1);
    expect(sent[0]?.key).toMatch(/^[\da-f-]{36}$/);
  });

  test('what the caller must mend is not repeated, and the tries end', async () => {
    const wrong = await against([refuse(422, 'validation_failed')]);
    await expect(wrong.parley.chat(TURN)).rejects.toMatchObject({ code: 'validation_failed', requestId: 'request-1' });
    expect(wrong.sent).toHaveLength(1);

    const down = await against([], { retries: 1 });
    await expect(down.parley.chat(TURN)).rejects.toMatchObject({ code: 'connection', status: null });
    expect(down.sent).toHaveLength(2);

    const proxy = await against([(response) => response.writeHead(502).end('<html>')], { retries: 0 });
    await expect(proxy.parley.chat(TURN)).rejects.toMatchObject({ code: 'unavailable', status: 502 });
  });

  test('a call ends at its time, and by its caller’s signal with the signal’s reason', async () => {
    const silent = await against([() => undefined, () => undefined]);
    const controller = new AbortController();
    const reason = new Error('enough');

    const late = silent.parley.chat(TURN, { timeoutMs: 100 });
    await expect(late).rejects.toMatchObject({ code: 'timeout' });
    const stopped = silent.parley.chat(TURN, { signal: controller.signal });
    await eventually(() => expect(silent.sent).toHaveLength(2));
    controller.abort(reason);

    await expect(stopped).rejects.toBe(reason);
    await expect(silent.parley.chat(TURN, { signal: controller.signal })).rejects.toBe(reason);
    expect(silent.sent).toHaveLength(2);
  });

  test('a stream that breaks goes on by itself and starts its text again', async () => {
    const accepted = event('accepted', { turnId: 't', conversationId: 'c' });
    const { parley, sent } = await against([
      stream(`${accepted}: wait\n\n${delta('He')}${delta('llo,\u2028')}`, { whole: false }),
      stream(`${accepted}${delta('Hi')}${delta('Hel', 2)}${delta('lo', 2)}${event('message', REPLY)}`, { whole: true }),
    ]);

    const parts = await collect(parley.stream(TURN));

    expect(parts).toEqual([
      { event: 'accepted', turnId: 't', conversationId: 'c' },
      { event: 'delta', text: 'He', reply: 'He', attempt: 1 },
      { event: 'delta', text: 'llo,\u2028', reply: 'Hello,\u2028', attempt: 1 },
      { event: 'delta', text: 'Hi', reply: 'Hi', attempt: 2 },
      { event: 'delta', text: 'Hel', reply: 'Hel', attempt: 3 },
      { event: 'delta', text: 'lo', reply: 'Hello', attempt: 3 },
      { event: 'message', ...REPLY },
    ]);
    expect(new Set(sent.map(({ key }) => key)).size).toBe(1);
  });

  test('an erasure whose answer was lost is done', async () => {
    const lost = await against([hangUp, refuse(404, 'not_found')]);
    expect(await lost.parley.erase('c')).toBeUndefined();

    const unknown = await against([refuse(404, 'not_found')]);
    await expect(unknown.parley.erase('c')).rejects.toMatchObject({ code: 'not_found' });
  });
});
