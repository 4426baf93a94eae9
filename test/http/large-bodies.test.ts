import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { beforeAll, expect, onTestFinished, test } from 'vitest';
import { type Answer, anAssistant, type ErrorBody, request, type TestAssistant } from '../support/builders.ts';
import { watchLoop } from '../support/loop.ts';
import { anOperator } from '../support/operator-client.ts';
import { atPace } from '../support/pace.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0, replyWorkers: 0 });
/** Half of the largest body. */
const HALF = 2 * 1024 * 1024 - 100;
let assistant: TestAssistant;
let bearer: string;

beforeAll(async () => {
  assistant = await anAssistant(stack, { knowledge: [] });
  const { assistantId } = assistant;
  const made = { name: 'a program', scope: 'manage' as const, assistantIds: [assistantId], createdBy: null };
  bearer = (await stack.service.tokens.createToken(made)).secret;
});

const importBody = async (json: string): Promise<Pick<Answer<ErrorBody>, 'status'> & { text: string }> => {
  const body = gzipSync(json);
  const answer = await fetch(`${stack.url}/operator/v1/assistants/${assistant.assistantId}/knowledge-import`, {
    method: 'POST',
    headers: {
      Authorization: `Bearer ${bearer}`,
      'Content-Type': 'application/json',
      'Content-Encoding': 'gzip',
    },
    body,
  });
  return { status: answer.status, text: await answer.text() };
};

test.each([
  ['nested lists', `{"text":"x","z":${'['.repeat(HALF)}${']'.repeat(HALF)}}`],
  ['empty lists', `{"text":"x","z":[${'[],'.repeat(HALF / 2)}0]}`],
  ['empty objects after a text with quotes', `{"text":"${'\\"'.repeat(9)}","z":[${'{},'.repeat(HALF / 2)}0]}`],
])('a small compressed body of many %s holds up nobody', async (_of, json) => {
  await importBody('{"format":"csv","text":"question,answer\\na,b","dryRun":true}');
  const stop = watchLoop();

  const { status, text } = await importBody(json);

  const { ms, name } = stop();
  expect(ms, name).toBeLessThan(atPace(60));
  expect([status, text]).toEqual([422, expect.stringContaining('invalid_json')]);
});

test('a large text with many commas, brackets and quotes is imported', async () => {
  const row = '"a, [b] {c} ""d""",e\n';
  const text = `question,answer\n${row.repeat(9_000)}`;
  const { status, text: answer } = await importBody(JSON.stringify({ format: 'csv', text, dryRun: true }));

  expect([status, JSON.parse(answer)]).toEqual([200, { imported: 9_000, refused: [] }]);
});

const OWN_TOKENS = 8;

/** Aborts at the end of the test. */
const untilFinished = (): AbortSignal => {
  const over = new AbortController();
  onTestFinished(() => over.abort());
  return over.signal;
};

/** Begins to send a large body. Resolves when the request has arrived. */
const begin = async (path: string, { bearer, over }: { bearer: string; over: AbortSignal }): Promise<Socket> => {
  const socket = connect(Number(new URL(stack.url).port), '127.0.0.1').on('error', () => undefined);
  over.addEventListener('abort', () => void socket.destroy());
  const head = ['Host: x', `Authorization: Bearer ${bearer}`, 'Content-Type: application/json', 'Expect: 100-continue'];
  socket.write(`POST ${path} HTTP/1.1\r\n${head.join('\r\n')}\r\nContent-Length: 4000000\r\n\r\n`);
  await once(socket, 'data');
  return socket.resume();
};
const beginImport = (bearer: string, assistantId: string, over: AbortSignal): Promise<Socket> =>
  begin(`/operator/v1/assistants/${assistantId}/knowledge-import`, { bearer, over });

/** Sends a body more slowly than it could, and begins again whenever it is cut off. */
const sendSlowly = async (bearer: string, assistantId: string, over: AbortSignal): Promise<void> => {
  const socket = await beginImport(bearer, assistantId, over);
  const pace = setInterval(() => socket.write(Buffer.alloc(20_000, 'x')), 200);
  socket.once('close', () => {
    clearInterval(pace);
    if (!over.aborted) void sendSlowly(bearer, assistantId, over);
  });
};

test.each([
  ['an owner', async () => (await anOperator(stack)).operatorId],
  ['the admin command', async () => null],
])('many unlimited tokens of %s leave places for the bodies of others', async (_of, creator) => {
  const createdBy = await creator();
  const made = { name: 'a program', scope: 'manage' as const, assistantIds: null, createdBy };
  const tokens = await Promise.all(Array.from({ length: OWN_TOKENS }, () => stack.service.tokens.createToken(made)));
  const over = untilFinished();
  const beginWith = async ({ secret }: { secret: string }) =>
    beginImport(secret, (await anAssistant(stack, { knowledge: [] })).assistantId, over);
  const sockets = await Promise.all(tokens.map(beginWith));
  const neighbour = await anOperator(stack);
  const theirs = await anAssistant(stack, { knowledge: [] });
  const body = { format: 'csv', text: `question,answer\na,b${'\n'.repeat(40_000)}` };

  const byPerson = await neighbour.post(`/assistants/${theirs.assistantId}/knowledge-import`, body);
  const byProgram = await importBody(JSON.stringify(body));

  expect([byPerson.status, byProgram.status]).toEqual([200, 200]);
  // Without places of their own, they wait until some of these are cut off.
  expect(sockets.filter(({ closed }) => closed)).toEqual([]);
});

test('as many tenants as there are places who send files leave the imports of others alone', async () => {
  const over = untilFinished();
  const sockets: Socket[] = [];
  for (let nth = 0; nth < OWN_TOKENS; nth += 1) {
    const { assistantId } = await anAssistant(stack, { knowledge: [] });
    const made = { name: 'x', scope: 'manage' as const, assistantIds: [assistantId], createdBy: null };
    const { secret } = await stack.service.tokens.createToken(made);
    const file = `/operator/v1/assistants/${assistantId}/source-files?name=a.txt`;
    sockets.push(await begin(file, { bearer: secret, over }), await beginImport(secret, assistantId, over));
  }
  const { assistantId } = assistant;

  const { status } = await request(`${stack.url}/operator/v1/assistants/${assistantId}/knowledge-import`, {
    method: 'POST',
    body: { format: 'csv', text: 'question,answer\na,b' },
    bearer,
  });

  expect([status, sockets.filter(({ closed }) => closed).length]).toEqual([200, 0]);
});

test('tokens of one owner that send slowly to many assistants leave places for the bodies of others', async () => {
  const { operatorId } = await anOperator(stack);
  const over = untilFinished();
  for (let nth = 0; nth < OWN_TOKENS; nth += 1) {
    const { assistantId } = await anAssistant(stack, { knowledge: [] });
    const made = { name: 'x', scope: 'manage' as const, assistantIds: [assistantId], createdBy: operatorId };
    await sendSlowly((await stack.service.tokens.createToken(made)).secret, assistantId, over);
  }

  const { status } = await importBody(JSON.stringify({ format: 'csv', text: 'question,answer\na,b' }));

  expect(status).toBe(200);
});
