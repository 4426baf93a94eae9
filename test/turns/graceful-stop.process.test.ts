import { randomUUID } from 'node:crypto';
import { Agent, request as httpRequest, type IncomingHttpHeaders } from 'node:http';
import { test, type TestContext } from 'vitest';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { openSilentConnection } from '../support/silent-connection.ts';
import { sized } from '../support/size.ts';
import { openStack, useOpened } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const GRACE_MS = sized({ everyday: 1_500, long: 3_000 });
/** Half of the production values. The long form keeps these. */
const timing = sized({ everyday: { replyStopAfterMs: 3_500, connectionsCutAfterMs: 4_000 }, long: {} });
const STOPPED_WITHIN_MS = 10_000;

const { engine, hold, asked } = aScriptedEngine();
const stack = useOpened(
  () => openStack({ engine, timing, env: { SHUTDOWN_GRACE_MS: String(GRACE_MS) }, deliveryWorkers: 0 }),
  (one) => one.close(),
);

type Answer = { status: number; headers: IncomingHttpHeaders; body: Record<string, unknown> };

/** A caller that keeps its connections open. */
const aCaller = (url: string, apiKey: string, { onTestFinished }: TestContext) => {
  const agent = new Agent({ keepAlive: true });
  onTestFinished(() => agent.destroy());
  return (path: string, body?: object): Promise<Answer> =>
    new Promise((resolve, reject) => {
      const headers = { Authorization: `Bearer ${apiKey}`, ...(body && { 'Content-Type': 'application/json' }) };
      const sent = httpRequest(`${url}${path}`, { agent, method: body ? 'POST' : 'GET', headers }, (response) => {
        let text = '';
        response.on('data', (data: Buffer) => (text += data.toString()));
        response.on('error', reject);
        response.on('end', () => {
          const { statusCode: status = 0, headers: received } = response;
          resolve({ status, headers: received, body: text === '' ? {} : (JSON.parse(text) as Answer['body']) });
        });
      });
      sent.on('error', reject).end(body && JSON.stringify(body));
    });
};

// Each test stops a process of its own and mostly waits.
test.concurrent('a stopping API process answers what it has accepted, refuses the rest with 503, and closes each connection by its answer', async (context) => {
  const { expect } = context;
  const letGo = hold('held');
  const { apiKey } = await anAssistant(stack);
  const api = await stack.startApi();
  const newCaller = () => aCaller(api.url, apiKey, context);
  const [busy, idle, fresh] = [newCaller(), newCaller(), newCaller()];
  expect((await idle('/readyz')).headers.connection).toBe('keep-alive');
  const inFlight = busy('/api/v1/chat', aTurn({ message: 'held' }));
  await eventually(() => expect(asked).toContain('held'));

  const stopping = api.close();

  for (const call of [idle, fresh]) {
    const refused = await call('/api/v1/chat', aTurn());
    expect([refused.status, refused.headers['retry-after'], refused.headers.connection]).toEqual([503, '1', 'close']);
  }
  const ready = await fresh('/readyz');
  expect([ready.status, ready.headers.connection]).toEqual([503, 'close']);
  expect(ready.body['checks']).toMatchObject({ process: 'draining' });
  letGo();
  const answered = await inFlight;
  expect([answered.status, answered.headers.connection]).toEqual([200, 'close']);
  await stopping;
});

test.concurrent('a caller whose turn takes longer than a stop is told to ask again, and gets the reply from another process', async (context) => {
  const { expect } = context;
  const letGo = hold('held for long');
  const { apiKey, chat } = await anAssistant(stack);
  const api = await stack.startApi();
  const turn = { session_id: randomUUID(), message: 'held for long' };
  const waiting = aCaller(api.url, apiKey, context)('/api/v1/chat', turn);
  await eventually(() => expect(asked).toContain('held for long'));

  const since = performance.now();
  const stopped = api.close();
  const told = await waiting;
  await stopped;

  expect([told.status, told.body['error']]).toEqual([500, expect.objectContaining({ code: 'reply_timeout' })]);
  expect(performance.now() - since).toBeLessThan(atPace(STOPPED_WITHIN_MS));
  const again = chat(turn);
  letGo();
  const { status, body, headers } = await again;
  expect([status, body.reply]).toEqual([200, 'echo: held for long']);
  expect(headers.get('idempotent-replayed')).toBe('true');
});

test.concurrent('a stop cuts connections that never sent a byte, or sent half a request', async ({
  expect,
  onTestFinished,
}) => {
  const api = await stack.startApi();
  await openSilentConnection(api.url, onTestFinished);
  const slow = await openSilentConnection(api.url, onTestFinished);
  slow.write('POST /api/v1/chat HTTP/1.1\r\nContent-Le');
  const since = performance.now();

  await api.close();

  expect(performance.now() - since).toBeLessThan(atPace(STOPPED_WITHIN_MS));
});
