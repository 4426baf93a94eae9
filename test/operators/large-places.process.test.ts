import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, IncomingMessage, ServerResponse } from 'node:http';
import { type AddressInfo, connect, Socket } from 'node:net';
import express, { type Request, type Response } from 'express';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { type Service, startMongod } from '../../scripts/services.ts';
import { exportRoutes } from '../../src/assistants/http/transfer.ts';
import { takeRoomForAnswer, takeRoomForList } from '../../src/platform/http/request-slots.ts';
import { holdFor, takeTurnsFor } from '../../src/platform/http/shares.ts';
import { anAssistant, anEntry, aTurn, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { withFailPoint } from '../support/fail-point.ts';
import { anOperator } from '../support/operator-client.ts';
import { profileStatements } from '../support/profile.ts';
import { openStack, type Stack } from '../support/stack.ts';

let mongod: Service;
let stack: Stack;
let owner: Awaited<ReturnType<typeof anOperator>>;
beforeAll(async () => {
  mongod = await startMongod({ failPoints: true });
  stack = await openStack({ deliveryWorkers: 0, env: { MONGODB_URL: mongod.url } });
  owner = await anOperator(stack);
});
afterAll(async () => {
  await stack.close();
  await mongod.dispose();
});

/** A request that never ends, of this holder and sender. */
const aRequest = (holder: string, sender = holder) => {
  const req = new IncomingMessage(new Socket()) as Request;
  const res = Object.assign(new ServerResponse(req), { locals: {} }) as unknown as Response;
  holdFor(res, holder);
  takeTurnsFor(res, sender);
  return { req, res };
};

const LARGE_ANSWERS = 16;
/** Holds all places of large answers, until the returned function is called. */
const holdAnswers = async (): Promise<() => void> => {
  const all = Array.from({ length: LARGE_ANSWERS }, (_, nth) => aRequest(`holder ${nth}`));
  const release = (): void => {
    for (const { res } of all) res.emit('close');
  };
  onTestFinished(release);
  await Promise.all(all.map(({ req, res }) => takeRoomForAnswer(req, res)));
  return release;
};

/** Asks while all places of large answers are held. They are released once the collection has been read. */
const askWithoutPlaces = async <Answer>(collection: string, ask: () => Promise<Answer>): Promise<Answer> => {
  const release = await holdAnswers();
  const { mongo } = stack.service;
  const isRead = { ns: `${mongo.name}.${collection}`, op: { $in: ['query', 'command'] } };
  const answered = Promise.withResolvers<Answer>();
  await profileStatements(stack, async () => {
    ask().then(answered.resolve, answered.reject);
    await eventually(async () => expect(await mongo.collection('system.profile').findOne(isRead)).not.toBeNull());
  });
  release();
  return answered.promise;
};

test('a search by MCP reads the knowledge before it takes a place of large answers', async () => {
  const { apiKey } = await anAssistant(stack, { knowledge: [anEntry({ question: 'Is there parking?' })] });
  const params = { name: 'search_knowledge', arguments: { query: 'parking' } };
  const headers = {
    Authorization: `Bearer ${apiKey}`,
    'Content-Type': 'application/json',
    Accept: 'application/json, text/event-stream',
  };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params });

  const found = await askWithoutPlaces('knowledge', () => fetch(`${stack.url}/mcp`, { method: 'POST', headers, body }));

  expect(await found.text()).toContain('Is there parking?');
});

test('the usage of an assistant is read before it takes a place of large answers', async () => {
  const { assistantId } = await anAssistant(stack);

  const { status } = await askWithoutPlaces('usage', () => owner.get(`/assistants/${assistantId}/usage`));

  expect(status).toBe(200);
});

test('lists of knowledge and files of usage need no place of large answers', async () => {
  const { assistantId } = await anAssistant(stack);
  const path = `/assistants/${assistantId}`;
  await holdAnswers();

  const listed = await owner.get<{ entries: unknown[] }>(`${path}/knowledge`);
  const { status } = await fetch(`${stack.url}/operator/v1${path}/usage.csv`, {
    headers: { Cookie: owner.cookie() ?? '' },
  });

  expect([listed.status, listed.body.entries?.length, status]).toEqual([200, 1, 200]);
});

test('a sender with long lists of many assistants leaves places for the lists of others', async () => {
  const { assistantId } = await anAssistant(stack);
  const ofOne = Array.from({ length: 40 }, (_, nth) => aRequest(`assistant ${nth}`, 'a sender'));
  let begun = 0;
  const waiting = ofOne.map(({ req, res }) => takeRoomForList(req, res).then(() => (begun += 1)));
  onTestFinished(async () => {
    for (const { res } of ofOne) res.emit('close');
    await Promise.allSettled(waiting);
  });

  const { status } = await owner.get(`/assistants/${assistantId}/knowledge`);

  expect(status).toBe(200);
  expect(begun).toBe(3);
});

test('lists whose readers take nothing leave their places to a list of another', async () => {
  const { assistantId } = await anAssistant(stack);
  const unread = Array.from({ length: 8 }, (_, nth) => aRequest(`unread ${nth}`));
  for (const { res } of unread) Object.defineProperty(res, 'writableNeedDrain', { value: true });
  onTestFinished(() => {
    for (const { res } of unread) res.emit('close');
  });
  for (const { req, res } of unread) {
    req.socket.once('close', () => res.emit('close'));
    await takeRoomForList(req, res);
  }

  const { status } = await owner.get(`/assistants/${assistantId}/knowledge`);

  expect(status).toBe(200);
  expect(unread.filter(({ req }) => req.socket.destroyed)).toHaveLength(1);
});

/** A program that may use only this assistant. */
const aProgram = async (assistantId: string, scope: 'read' | 'manage' = 'read') => {
  const made = { name: 'a program', scope, assistantIds: [assistantId], createdBy: null };
  const { secret: bearer } = await stack.service.tokens.createToken(made);
  return (path: string, options = {}) => request(`${stack.url}/operator/v1${path}`, { bearer, ...options });
};

/** An assistant whose knowledge is more than the buffers of the operating system hold. */
const aLargeAssistant = async (): Promise<string> => {
  const { assistantId } = await anAssistant(stack, { knowledge: [] });
  const { mongo } = stack.service;
  const variants = Array.from({ length: 50 }, (_, nth) => `${nth} `.padEnd(500, '語'));
  const entry = { assistantId, variants, answer: '語'.repeat(4_000), language: null, actions: [], tags: [] };
  const entries = Array.from({ length: 250 }, (_, position) => ({
    _id: randomUUID(),
    position,
    question: `${position}`,
    ...entry,
  }));
  await mongo.collection('knowledge').insertMany(entries as never);
  const last = { $set: { 'knowledgePlaces.last': entries.length } };
  await mongo.collection<{ _id: string }>('assistants').updateOne({ _id: assistantId }, last);
  return assistantId;
};

/** Reads only the beginning of a list, and the rest when it is asked for. */
const readBeginning = async (path: string, header: string) => {
  const socket = connect(Number(new URL(stack.url).port), '127.0.0.1').on('error', () => undefined);
  onTestFinished(() => void socket.destroy());
  socket.write(`GET /operator/v1${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${header}\r\n\r\n`);
  const [first] = (await once(socket, 'data')) as [Buffer];
  socket.pause();
  expect(first.toString()).toContain(' 200 OK');
  return {
    /** The last bytes that come. */
    readEnd: async (): Promise<string> => {
      let end = '';
      socket.on('data', (piece: Buffer) => (end = (end + piece.toString('latin1')).slice(-20))).resume();
      await once(socket, 'close');
      return end;
    },
  };
};
/** How a list ends that has come whole. */
const LAST = /\]\}\r\n0\r\n\r\n$/;

test('a list that its own sender’s unread lists leave no place ends one of these, and none of another', async () => {
  const [large, { assistantId: small }] = [await aLargeAssistant(), await anAssistant(stack)];
  const made = { name: 'a program', scope: 'read' as const, assistantIds: [large], createdBy: null };
  const path = `/assistants/${large}/knowledge`;
  const unread = [await readBeginning(path, `Cookie: ${owner.cookie()}`)];
  for (let nth = 0; nth < 3; nth += 1) {
    const { secret } = await stack.service.tokens.createToken(made);
    unread.push(await readBeginning(path, `Authorization: Bearer ${secret}`));
  }

  const { status } = await (await aProgram(small))(`/assistants/${small}/knowledge`);

  expect(status).toBe(200);
  const areWhole: boolean[] = [];
  for (const { readEnd } of unread) areWhole.push(LAST.test(await readEnd()));
  expect([areWhole[0], areWhole.filter((isWhole) => !isWhole).length]).toEqual([true, 1]);
});

const COSTLY_READS = 4;

test('the newest events of a conversation do not wait for costly reads', async () => {
  const { chat } = await anAssistant(stack);
  const { conversationId } = (await chat(aTurn())).body;
  const programs = await Promise.all(
    Array.from({ length: COSTLY_READS }, async () => aProgram((await anAssistant(stack)).assistantId)),
  );
  const order: string[] = [];
  const namespace = `${stack.service.mongo.name}.search`;
  const slow = { failCommands: ['find', 'aggregate'], namespace, blockConnection: true, blockTimeMS: 2_000 };

  await withFailPoint(mongod.url, slow, async (reached) => {
    const searches = programs.map((call) => call('/inbox?search=alpha').then(() => order.push('a search')));
    await reached();
    const { status } = await owner.get(`/conversations/${conversationId}/events`);
    order.push(`events: ${status}`);
    await Promise.all(searches);
  });

  expect(order[0]).toBe('events: 200');
});

test('an export whose cursor skips all lines ends after a page once somebody else waits for its place', async () => {
  const entries = Array.from({ length: 60 }, (_, nth) => anEntry({ question: `question ${nth}` }));
  const { assistantId } = await anAssistant(stack, { knowledge: entries });
  const exported = await fetch(`${stack.url}/operator/v1/assistants/${assistantId}/export`, {
    headers: { Cookie: owner.cookie() ?? '' },
  });
  const [header = ''] = (await exported.text()).split('\n');
  const position = JSON.parse(
    Buffer.from((JSON.parse(header) as { cursor: string }).cursor, 'base64url').toString(),
  ) as Record<string, unknown>;
  const after = Buffer.from(JSON.stringify({ ...position, lines: [1, 1e9, 0, 0, 0, 0] })).toString('base64url');
  const { assistants, conversations, deliveries } = stack.service;
  const [route] = exportRoutes({
    assistants,
    conversations,
    deliveries,
    notes: { read: async function* () {} },
    draining: new AbortController().signal,
  });
  let reads = 0;
  const app = express();
  app.get('/', async (req, res) => {
    res.locals['endsEarly'] = true;
    await route!.handle({
      params: { id: assistantId },
      query: { after, conversations: true },
      req,
      res,
      signal: new AbortController().signal,
      note: () => undefined,
      record: () => Promise.resolve(),
      costly: (read: () => Promise<unknown>) => {
        reads += 1;
        return read();
      },
    } as never);
  });
  const server = createServer(app).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');

  const answer = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);

  expect([answer.status, await answer.text(), reads]).toEqual([200, '', 1]);
});

const LARGE_BODIES = 4;
/** More than a body that needs no place. */
const MORE = 'x'.repeat(70_000);
const anImport = (options: object) => ({
  method: 'POST',
  body: { format: 'json', text: JSON.stringify([anEntry()]), more: MORE, ...options },
});

/** Who is answered first once it is known who is slow. On a slow machine, the process may have stood still meanwhile. */
const firstOfSlow = async (first: () => Promise<string | undefined>): Promise<string | undefined> => {
  await first(); // nobody knows yet that these are slow
  let answered: string | undefined;
  for (let nth = 0; nth < 3 && answered !== 'neighbour: 200'; nth += 1) answered = await first();
  return answered;
};

test('imports that wait for the places of versions leave places for the bodies of others', async () => {
  const drafted = await Promise.all(
    Array.from({ length: LARGE_BODIES }, async () => {
      const { assistantId } = await anAssistant(stack);
      const call = await aProgram(assistantId, 'manage');
      await call(`/assistants/${assistantId}`, { method: 'PATCH', body: { drafts: true } });
      await call(`/assistants/${assistantId}/knowledge`, { method: 'POST', body: anEntry({ question: 'New?' }) });
      return {
        assistantId,
        replace: () => call(`/assistants/${assistantId}/knowledge-import`, anImport({ replace: true })),
      };
    }),
  );
  const { assistantId } = await anAssistant(stack);
  const neighbour = await aProgram(assistantId, 'manage');
  const { mongo } = stack.service;
  const namespace = `${mongo.name}.draftEntries`;
  const slow = { failCommands: ['delete'], namespace, blockConnection: true, blockTimeMS: 3_000 };

  /** Who is answered first: one of those who wait for one slow version, or a neighbour who begins later. */
  const first = async (): Promise<string | undefined> => {
    const order: string[] = [];
    await Promise.all(
      drafted.map(({ assistantId: _id }) =>
        mongo.collection('drafts').updateOne({ _id: _id as never }, { $set: { bytes: 100_000 } }),
      ),
    );
    const during = async (reached: () => Promise<unknown>): Promise<void> => {
      const waiting = drafted.map(({ replace }) => replace().then(({ status }) => order.push(`draft: ${status}`)));
      await reached();
      const { status } = await neighbour(`/assistants/${assistantId}/knowledge-import`, anImport({ dryRun: true }));
      order.push(`neighbour: ${status}`);
      await Promise.all(waiting);
    };
    await withFailPoint(mongod.url, slow, during, { times: 1 });
    expect(order.filter((one) => !one.endsWith(' 200'))).toEqual([]);
    return order[0];
  };

  expect(await firstOfSlow(first)).toBe('neighbour: 200');
});

test('holders whose imports of questions take long leave places for the bodies of others', async () => {
  const text = JSON.stringify({ question: 'Where?', expected: { kind: 'none' } });
  const slowOnes = await Promise.all(
    Array.from({ length: LARGE_BODIES }, async () => {
      const { assistantId } = await anAssistant(stack);
      const sets = `/assistants/${assistantId}/question-sets`;
      const { setId } = (await owner.post<{ setId: string }>(sets, { name: 'Some' })).body;
      const call = await aProgram(assistantId, 'manage');
      const body = { format: 'jsonl', text, more: MORE };
      return () => call(`${sets}/${setId}/import`, { method: 'POST', body });
    }),
  );
  const { assistantId } = await anAssistant(stack);
  const neighbour = await aProgram(assistantId, 'manage');
  const namespace = `${stack.service.mongo.name}.questionCases`;
  const slow = { failCommands: ['insert'], namespace, blockConnection: true, blockTimeMS: 2_500 };

  /** Who is answered first: one whose questions are stored slowly, or a neighbour who begins later. */
  const first = async (): Promise<string | undefined> => {
    const order: string[] = [];
    await withFailPoint(mongod.url, slow, async (reached) => {
      const waiting = slowOnes.map((send) => send().then(({ status }) => order.push(`questions: ${status}`)));
      await reached();
      const { status } = await neighbour(`/assistants/${assistantId}/knowledge-import`, anImport({ dryRun: true }));
      order.push(`neighbour: ${status}`);
      await Promise.all(waiting);
    });
    expect(order.filter((one) => !one.endsWith(' 200'))).toEqual([]);
    return order[0];
  };

  expect(await firstOfSlow(first)).toBe('neighbour: 200');
});
