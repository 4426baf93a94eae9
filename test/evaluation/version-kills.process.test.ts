import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { type Service, startMongod } from '../../scripts/services.ts';
import { anAssistant, anEntry, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { withFailPoint } from '../support/fail-point.ts';
import { anOperator, openOperatorClient } from '../support/operator-client.ts';
import { startRealProcess } from '../kit/processes.ts';
import { QUICK } from '../support/quick.ts';
import { sized } from '../support/size.ts';
import { addProposals } from '../support/sources.ts';
import { openStack, type Stack } from '../support/stack.ts';

let mongod: Service;
let stack: Stack;
beforeAll(async () => {
  mongod = await startMongod({ failPoints: true });
  stack = await openStack({ env: { MONGODB_URL: mongod.url }, replyWorkers: 0, deliveryWorkers: 0, timing: QUICK });
});
afterAll(async () => {
  await stack.close();
  await mongod.dispose();
});

/** A command of MongoDB and its collection. */
type Step = [command: string, collection: string | null];
const COMMIT: Step = ['commitTransaction', null];

type Op = { lsid: { id: unknown; uid: unknown } };

/** Kills an API process with SIGKILL when its call reaches this command of MongoDB, which is then not executed. */
const killAt = async (command: Step[0], collection: Step[1], call: (url: string) => Promise<unknown>) => {
  const admin = stack.service.mongo.getClient().db('admin');
  const { name } = stack.service.mongo;
  const own = new URL(stack.env['MONGODB_URL'] ?? '');
  own.searchParams.set('appName', 'killed');
  const api = await startRealProcess('api', { ...stack.env, MONGODB_URL: own.href });
  onTestFinished(() => api.kill());
  const blocked = { [`command.${command}`]: collection ?? 1, appName: 'killed' };
  const held = (): Promise<Op[]> =>
    admin
      .aggregate<Op>([{ $currentOp: {} }, { $match: { ...blocked, active: true } }], {
        readConcern: { level: 'local' },
      })
      .toArray();
  const failPoint = {
    failCommands: [command],
    blockConnection: true,
    blockTimeMS: 60_000,
    appName: 'killed',
    ...(collection !== null && { namespace: `${name}.${collection}` }),
  };
  await withFailPoint(mongod.url, failPoint, async (reached) => {
    const ended = call(api.url).catch(() => 'ended');
    await reached();
    const [op] = await held();
    await api.kill();
    expect(await ended).toBe('ended');
    // MongoDB ends the transaction of a client that is gone after a minute by itself.
    await admin.command({ killAllSessionsByPattern: [{ lsid: op?.lsid }] });
  });
  await eventually(async () => expect(await held()).toEqual([]));
};

/** Calls other processes with the session of an operator. */
const clientsOf = (owner: { cookie: () => string | null }) => (url: string) => {
  const client = openOperatorClient(url);
  client.setCookie(owner.cookie());
  return client;
};

test('a kill while a version is published or rolled back leaves all of it or nothing, and the next try works', async () => {
  const owner = await anOperator(stack);
  const { assistantId } = await anAssistant(stack, {
    knowledge: ['One?', 'Two?', 'Three?'].map((question) => anEntry({ question })),
  });
  const own = `/assistants/${assistantId}`;
  await owner.call('PATCH', own, { drafts: true });
  const { entries } = (await owner.get<{ entries: { entryId: string }[] }>(`${own}/knowledge`)).body;
  const state = async () => {
    const paths = ['', '/knowledge', '/sources', '/knowledge?draft=true', '/draft', '/versions'];
    return Promise.all(paths.map(async (path) => (await owner.get(`${own}${path}`)).body));
  };
  const past = () => stack.service.mongo.collection('pastEntries').find({ assistantId }).sort({ _id: 1 }).toArray();
  const sourceIds = async () =>
    (await owner.get<{ sources: { sourceId: string }[] }>(`${own}/sources`)).body.sources.map((one) => one.sourceId);
  const addSource = (url: string) =>
    clientsOf(owner)(url).post<object>(`${own}/sources`, { kind: 'page', url: 'http://127.0.0.1:9/' });
  const change = async (instructions: string) => {
    for (const sourceId of await sourceIds()) await owner.call('DELETE', `${own}/sources/${sourceId}`);
    expect((await addSource(stack.url)).status).toBe(201);
    await owner.call('PUT', `${own}/knowledge/${entries[0]?.entryId}`, anEntry({ answer: instructions }));
    await owner.call('DELETE', `${own}/knowledge/${entries[1]?.entryId}`);
    await owner.post(`${own}/knowledge`, anEntry({ question: 'New?' }));
    await owner.call('PATCH', own, { instructions });
  };
  const as = clientsOf(owner);
  const publish = (url: string) => as(url).post(`${own}/draft/publish`, {});
  const rollBack = (to: number) => (url: string) => as(url).post(`${own}/versions/${to}/roll-back`, {});
  const killedBefore = async (call: (url: string) => Promise<{ status: number }>, ...steps: Step[]) => {
    for (const step of steps) {
      const before = [await state(), await past()];
      await killAt(...step, call);
      expect([step, await state(), await past()]).toEqual([step, ...before]);
    }
    expect((await call(stack.url)).status).toBe(200);
  };

  await change('Two.');
  for (const step of sized<Step[]>({ everyday: [], long: [COMMIT] })) {
    const before = await state();
    await killAt(...step, addSource);
    expect(await state()).toEqual(before);
  }
  await killedBefore(
    publish,
    ...sized<Step[]>({ everyday: [COMMIT], long: [['insert', 'knowledge'], ['update', 'sources'], COMMIT] }),
  );
  const second = await state();
  const published = await sourceIds();
  await killedBefore(
    rollBack(1),
    ...sized<Step[]>({
      everyday: [['update', 'sources']],
      long: [['delete', 'knowledge'], ['update', 'sources'], COMMIT],
    }),
  );
  expect([published.length, await sourceIds()]).toEqual([1, []]);
  const back = rollBack(2);
  await sized<() => Promise<unknown>>({
    everyday: () => back(stack.url),
    long: () => killAt('update', 'knowledgeVectors', back),
  })();

  expect([(await state())[1], await sourceIds()]).toEqual([second[1], published]);
  expect((await owner.get(`${own}/versions`)).body).toMatchObject({
    versions: [{ version: 4, note: 'Back to version 2.' }, { version: 3 }, { version: 2 }, { version: 1 }],
  });
  await change('Five.');
  expect(await publish(stack.url)).toMatchObject({
    status: 200,
    body: { version: 5, changes: { sources: { added: 1, removed: 1 } } },
  });
});

test('each turn is answered by one version while versions are made and reply workers are killed', async () => {
  const owner = await anOperator(stack);
  const { assistantId, chat } = await anAssistant(stack);
  const own = `/assistants/${assistantId}`;
  await owner.call('PATCH', own, { drafts: true });
  const { entries } = (await owner.get<{ entries: { entryId: string }[] }>(`${own}/knowledge`)).body;
  /** What each version answers, in its entry and in a setting. */
  const contents: number[] = [];
  const make = async (path: string, content: number): Promise<void> => {
    const { status, body } = await owner.post<{ version: number }>(`${own}/${path}`, {});
    expect(status).toBe(200);
    contents[body.version] = content;
  };
  const publish = async (content: number): Promise<void> => {
    await owner.call('PUT', `${own}/knowledge/${entries[0]?.entryId}`, anEntry({ answer: `Answer ${content}.` }));
    await owner.call('PATCH', own, { threshold: content / 1_000 });
    await make('draft/publish', content);
  };
  const asked: string[] = [];
  const ask = async (): Promise<void> => {
    const { status, body } = await chat(aTurn(), { headers: { Prefer: 'respond-async' } });
    expect(status).toBe(202);
    asked.push(body.conversationId);
  };
  const askMany = () => Promise.all(Array.from({ length: sized({ everyday: 6, long: 40 }) }, ask));
  type Told = { role: string; content: string; why: { version: number; threshold: number } };
  const answersTo = async (conversationId: string) => {
    const { messages } = (await owner.get<{ messages: Told[] }>(`/conversations/${conversationId}`)).body;
    return messages.filter(({ role }) => role === 'assistant');
  };
  const start = async () => {
    const worker = await startRealProcess('quickReply', stack.env);
    onTestFinished(() => worker.kill());
    return worker;
  };
  await publish(2);

  for (let round = 1; round <= sized({ everyday: 1, long: 6 }); round += 1) {
    const worker = await start();
    const content = 2 + round;
    await Promise.all([askMany(), publish(content)]);
    const back = contents.indexOf(2);
    const answered = eventually(async () => expect(await answersTo(asked.at(-1) ?? '')).not.toEqual([]));
    await Promise.all([askMany(), make(`versions/${back}/roll-back`, 2), answered.then(() => worker.kill())]);
    await askMany();
  }
  await start();

  const seen = new Set<number>();
  for (const conversationId of asked) {
    const [answer, ...more] = await eventually(async () => {
      const answers = await answersTo(conversationId);
      expect(answers).not.toEqual([]);
      return answers;
    });
    const { version = 0, threshold = 0 } = answer?.why ?? {};
    expect([answer?.content, threshold, more]).toEqual([
      `Answer ${contents[version]}.`,
      contents[version]! / 1_000,
      [],
    ]);
    seen.add(version);
  }
  expect(seen.size).toBeGreaterThan(1);
});

test.for(sized({ everyday: [false], long: [false, true] }))(
  'a kill while proposals are accepted adds each entry once (drafts: %s)',
  async (drafts) => {
    const owner = await anOperator(stack);
    const { assistantId } = await anAssistant(stack, { knowledge: [] });
    const own = `/assistants/${assistantId}`;
    if (drafts) await owner.call('PATCH', own, { drafts: true });
    await addProposals(stack, { assistantId, sourceId: randomUUID() }, [{}, {}, {}]);
    const accept = (url: string) =>
      clientsOf(owner)(url).post<{ entries: number }>(`${own}/proposed-entries/accept`, { proposalIds: null });
    const counts = async () => {
      const [proposed, added] = await Promise.all([
        owner.get<{ proposals: object[] }>(`${own}/proposed-entries`),
        owner.get<{ entries: object[] }>(`${own}/knowledge?draft=${drafts}`),
      ]);
      return { proposed: proposed.body.proposals.length, added: added.body.entries.length };
    };

    const steps: Step[] = [['update', 'proposedEntries'], COMMIT];
    for (const step of steps) {
      await killAt(...step, accept);
      expect([step, await counts()]).toEqual([step, { proposed: 3, added: 0 }]);
    }

    expect((await accept(stack.url)).body).toEqual({ entries: 3 });
    expect(await counts()).toEqual({ proposed: 0, added: 3 });
    expect((await accept(stack.url)).body).toEqual({ entries: 0 });
  },
);
