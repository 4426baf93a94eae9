import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { setFlagsFromString } from 'node:v8';
import type { mongo } from 'mongoose';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { anAssistant, anEntry, aTurn, type HistoryBody, request, type TestAssistant } from '../support/builders.ts';
import { anEmbedderOfTokens } from '../support/embedder.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator, PASSWORD } from '../support/operator-client.ts';
import { collectionIn, connectUnprofiled, examinedBy, type Profiled, profileStatements } from '../support/profile.ts';
import { type Scene, setScene } from '../support/scene.ts';
import { openProvider } from '../kit/provider.ts';
import { openReceiver } from '../kit/receiver.ts';
import { aReader, QUICK } from '../support/source-reading.ts';
import { isLong, longTest } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { aVisitor, SITE } from '../support/visitor.ts';
import { aPage, aSentence, openWebsite } from '../kit/website.ts';

/** How many documents a collection has. All others have 1,000. */
const DOCUMENTS: Record<string, number> = {
  conversations: 10_000,
  messages: 10_000,
  deliveries: 10_000,
  search: 25_000,
  idempotencyKeys: 10_000,
  // People make these by hand.
  assistants: 150,
  operators: 150,
  apiKeys: 500,
  endpoints: 500,
  // One for each running worker, or a few.
  embedders: 50,
  workers: 200,
};
const OTHERS = 1_000;
/** How many of ten copies belong to the same assistant. So many of `search` that a word is frequent: in more than 5,000. */
const MINE_OF_10: Record<string, number> = {
  conversations: 3,
  messages: 3,
  deliveries: 3,
  idempotencyKeys: 3,
  search: 7,
};
/** A statement may read this many documents and index keys, and so many more for each document that it finds. */
const READ_MAX = 400;
const READ_FOR_EACH = 20;

/** Statements that read more, with the bound of what they read. */
const EXCEPTIONS: [statement: RegExp, bound: string][] = [
  [/^(assistants|operators) query:\s*(sort createdAt)?$/, 'listed whole: people make them by hand'],
  [/^search (query|aggregate): .*terms/, 'a frequent word: at most 5,000 conversations, and 3 s'],
  [/^search query: assistantId( updatedAt .*)? sort/, 'the newest 5,000 conversations, searched for a frequent word'],
  [/^deliveries aggregate: assistantId endpointId event createdAt/, 'keys of the hours that are not counted yet'],
  [
    /^conversations query: \$and\(\$and\(assistantId\) \| channel \| status\) sort/,
    'a rare status by the plan for a frequent one, which MongoDB gives up when it has read ten times as much',
  ],
  [/^search query: .*session\) sort/, 'part of a session id: only the index of these assistants, for at most 3 s'],
];

/** Statements on sharded collections that go to every shard, with the reason. No turn and no delivery waits for them. */
const TO_EVERY_SHARD: [statement: RegExp, reason: string][] = [
  [/^conversations query: (outbox|takeBy|waiting\.0)/, 'a sweep, or the streams of an endpoint that has changed'],
  [/^deliveries (query|update): outcome (claimedAt|createdAt)/, 'a sweep'],
  [/^deliveries distinct: assistantId/, 'a sweep: who has tests and resends that wait'],
  [/^conversations aggregate: outbox/, 'the alert for events that wait'],
  [/^conversations query: assistantId updatedAt/, 'the projection'],
  [/^deliveries aggregate: assistantId endpointId event createdAt/, 'the hourly figures of deliveries'],
  [/^deliveries aggregate: (recoveryId|assistantId endpointId outcome endedOn)/, 'the progress of a recovery'],
  [
    /^deliveries query: assistantId endpointId outcome .*sort (endedOn|sequence)/,
    'a recovery, or a list of ended events',
  ],
  [/^messages query: entries/, 'an Idempotency-Key or a page about a turn that is no longer in `recent`'],
  [/^(conversations|search) query: \$and\(/, 'the inbox'],
  [/^(conversations|deliveries|search) (query|aggregate): assistantId/, 'a list, a search or figures for people'],
  [/^deliveries (query|aggregate): conversationId/, 'the events of one conversation, for people or its erasure'],
  [/^(deliveries update|idempotencyKeys query): conversation(Id|Key)/, 'an erasure'],
];

/** Calls in the source that this test does not make, with the reason. */
const NOT_MADE: Record<string, string> = {
  'src/events/store.ts: deliveries.find': 'by `_id`, if deliveries ended some seconds before',
  'src/events/claims.ts: deliveries.updateOne': 'by `_id`, if a worker stops while it has a claim',
  'src/conversations/erasure.ts: tombstones.updateOne': 'by `_id`, if a process stops during a purge',
  'src/assistants/knowledge/store.ts: knowledge.deleteMany': 'takes back a change that failed half-way',
  'src/conversations/inbox.ts: conversations.find': 'by ids that the search found',
  'src/insights/conversation-search.ts: rows.find': 'by `_id`',
  'src/insights/misses.ts: misses.updateOne': 'by `_id`',
  'src/events/store.ts: deliveries.updateMany': 'by `_id`, in batches',
  'src/turns/idempotency-keys.ts: keys.deleteMany': 'by `_id`, in batches',
  'src/evaluation/question-sets.ts: cases.deleteMany': 'by `_id`, in batches',
  'src/evaluation/evaluations.ts: results.deleteMany': 'by `_id`, in batches',
  'src/sources/passages.ts: tokens.find': 'by `_id`',
  'src/sources/passages.ts: sources.updateMany': 'by `_id`',
  'src/sources/proposals.ts: drafts.find': 'by `_id`, if the assistant has drafts',
  'src/sources/proposals.ts: proposedEntries.updateMany': 'gives back proposals that could not be accepted',
  'src/sources/runs.ts: passages.updateMany': 'by `_id`',
  'src/sources/run-pages.ts: passages.updateMany': 'by `_id`',
  'src/sources/run-pages.ts: pages.find': 'of one source, if its sitemaps were not read to their end',
  'src/sources/run-pages.ts: pages.updateMany': 'by `_id`, or the pages of a run that failed',
  'src/alerts/alert.ts: alerts.bulkWrite': 'by `_id`',
  'src/alerts/http/find-work.ts: conversations.findById': 'made for a conversation, and for a turn behind another',
  // These need secrets under an older key.
  'src/events/endpoints.ts: stored.updateOne': 'by `_id`',
  'src/assistants/drafts/drafts.ts: drafts.updateOne': 'by `_id`',
  'src/assistants/drafts/versions.ts: versions.updateOne': 'by `_id`',
  // V8 does not count these, in the callback of a transaction. They are among the statements all the same.
  'src/insights/project.ts: rows.bulkWrite': 'by `_id`',
  'src/insights/project.ts: hours.bulkWrite': 'by `_id`',
  'src/insights/project.ts: days.bulkWrite': 'by `_id`',
  'src/assistants/store.ts: assistants.findOneAndUpdate': 'by `_id`',
  'src/evaluation/evaluations.ts: evaluations.updateOne': 'by `_id`',
  'src/evaluation/evaluations.ts: results.bulkWrite': 'by `_id`',
  'src/sources/runs.ts: sources.updateOne': 'by `_id`',
  'src/sources/passage-vectors.ts: indexes.insertOne': 'an insert',
  'src/sources/passage-vectors.ts: indexes.deleteMany': 'the pieces of one source',
  'src/sources/passage-vectors.ts: sources.updateOne': 'by `_id`',
  'src/insights/group-misses.ts: misses.bulkWrite': 'by `_id`',
  'src/insights/group-misses.ts: pending.deleteMany': 'by `_id`',
};

/** Indexes that no statement uses: they keep values unique, or MongoDB deletes by them. */
const NOT_READ = ['endpoints assistantId_1_place_1', 'operators links', 'recoveries active'];

/** Work that the reply worker ends within seconds, so there is nothing to copy. */
const SOON_EMPTY = 'pendingMisses';
/** A service has so few of them that copies would leave none for the walk. */
const FEW = 'operatorTokens';

const HEALTHY = { pause: null, failing: '$$REMOVE', certificateUntil: '$$REMOVE' };

const stack = useStack({
  embedder: () => anEmbedderOfTokens(),
  sourcesWorkers: 1,
  env: { ALERT_WEBHOOK_URL: 'http://127.0.0.1:9', ALERT_WEBHOOK_SECRET: 'nobody listens' },
  timing: { ...QUICK, sweepEveryMs: 1_000, alertEveryMs: 2_000, alertEndsAfterMs: 300 },
});
let database: mongo.Db;
let close: () => Promise<void> = async () => undefined;
let assistant: TestAssistant;
let scene: Scene | undefined;

const collections = async (): Promise<string[]> =>
  (await database.listCollections().toArray()).map(({ name }) => name).filter((name) => !name.startsWith('system.'));

/**
 * Copies the documents of a collection under other ids and into the past: some for the same assistant, most for others.
 * A number replaces the first digits of an id, so that it is still a uuid.
 */
const multiply = async (name: string): Promise<void> => {
  const collection = database.collection(name);
  const count = await collection.countDocuments();
  expect([name, count > 0]).toEqual([name, true]);
  const number = { $toString: { $add: ['$nth', 10_000_000] } };
  const ifText = (field: string, text: object) => ({ $cond: [{ $eq: [{ $type: field }, 'string'] }, text, field] });
  const another = (field: string) => ifText(field, { $concat: [number, { $substrCP: [field, 8, 200] }] });
  const longer = (field: string) => ifText(field, { $concat: [number, field] });
  const earlier = (field: string) => ({
    $cond: [{ $eq: [{ $type: field }, 'date'] }, { $subtract: [field, { $multiply: ['$nth', 600_000] }] }, field],
  });
  const fieldsOf = (names: string[], change: (field: string) => object) =>
    Object.fromEntries(names.map((field) => [field, change(`$${field}`)]));
  const onePage = { seq: '$$one.seq', messages: [{ turnId: another('$conversationId') }] };
  const changed: Record<string, object> = {
    conversations: { recent: [], texts: { $literal: {} }, outbox: '$$REMOVE' },
    messages: { entries: { $map: { input: { $slice: ['$entries', 2] }, as: 'one', in: onePage } } },
    deliveries: { responseHeaders: '$$REMOVE', requestHeaders: '$$REMOVE' },
    endpoints: { place: { $add: ['$place', { $multiply: ['$nth', 100] }] }, ...HEALTHY },
    alerts: { open: '$$REMOVE', untold: '$$REMOVE', endedAt: '$beganAt', ...fieldsOf(['assistantId'], another) },
    tombstones: { purgeAt: { $add: ['$purgeAt', 86_400_000] } },
  };
  const isMine = { $lt: [{ $mod: ['$nth', 10] }, MINE_OF_10[name] ?? 0] };
  const others = { $concat: ['other-', { $toString: { $mod: ['$nth', 7] } }] };
  await collection
    .aggregate(
      [
        { $set: { nth: { $range: [0, Math.ceil((DOCUMENTS[name] ?? OTHERS) / count)] } } },
        { $unwind: '$nth' },
        {
          $set: {
            ...fieldsOf(['_id', 'conversationId', 'conversationKey', 'eventId'], another),
            ...fieldsOf(['hash', 'email'], longer),
            ...fieldsOf(['createdAt', 'updatedAt', 'happenedAt', 'beganAt', 'day'], earlier),
            assistantId: { $cond: [isMine, '$assistantId', ifText('$assistantId', others)] },
            ...changed[name],
          },
        },
        { $unset: ['nth', 'link'] },
        { $merge: { into: name, whenMatched: 'keepExisting' } },
      ],
      { writeConcern: { w: 1, j: false } },
    )
    .toArray();
};

const recently = (): string => new Date(Date.now() - 600_000).toISOString();
const ask = (nth: number): string => `Do you repair umbrellas, question ${nth}?`;
const keyed = (key: string) => ({ headers: { 'Idempotency-Key': key } });

/** A service after some weeks of use. The people of an earlier scene get other addresses. */
const openScene = async (): Promise<Scene> => {
  await database.collection('operators').updateMany({}, [{ $set: { email: { $concat: ['before-', '$email'] } } }]);
  return setScene(stack);
};

/** A long conversation, and one that is erased. */
const talk = async (): Promise<TestAssistant> => {
  const made = await anAssistant(stack);
  for (let nth = 0; nth < 20; nth += 1) await made.chat({ session_id: 'long', message: ask(nth) }, keyed(`key-${nth}`));
  const erased = await made.chat(aTurn());
  await made.call(`/api/v1/conversations/${erased.body.conversationId}`, { method: 'DELETE' });
  return made;
};

const fill = async ({ assistantId, endpointId }: Scene): Promise<void> => {
  const owner = await anOperator(stack);
  const read = await assistant.chat(aTurn());
  await owner.post(`/conversations/${read.body.conversationId}/read`, { seq: 1 });
  await eventually(async () => {
    const [projected, vectors] = await Promise.all(
      ['search', 'knowledgeVectors'].map((name) => database.collection(name).countDocuments()),
    );
    if (!projected || !vectors || projected < 6 || vectors < 2) throw new Error('the workers are not done');
  });
  const { recoveries } = stack.service;
  const range = { assistantId, endpointId, from: new Date(0), to: new Date(), outcomes: ['not_sent' as const] };
  const { _id: recoveryId } = await recoveries.start(range, 'a test');
  await eventually(async () => {
    if ((await recoveries.find(recoveryId))?.due) throw new Error('the recovery is not over');
  });
  const names = await collections();
  // First, because the projection would make some of them from the copied conversations.
  await multiply('search');
  for (const name of names) if (!['search', SOON_EMPTY, FEW].includes(name)) await multiply(name);
};

beforeAll(async () => {
  const connection = await connectUnprofiled(stack);
  database = connection.getClient().db();
  close = async () => {
    await scene?.close();
    await connection.close();
  };
  if (isLong) {
    scene = await openScene();
    await limitAndCallProvider();
  }
  assistant = await talk();
  if (scene) await fill(scene);
});
afterAll(() => close());

const FAQ = (answer: string): string =>
  `<h2>Do you repair umbrellas?</h2><p>${answer}. ${aSentence('umbrellas')}</p><details><summary>What does a repair cost?</summary><p>${answer}, in most cases.</p></details>`;

/** Reads a website as it changes, as long as it takes until a page of it is gone; and one that fails. */
const readSources = async (): Promise<void> => {
  const shared = aSentence('everybody');
  const site = await openWebsite({
    '/': aPage('Start', `${aSentence('the start')}</p>${FAQ('Yes')}<p>`, ['/a', '/b', '/c', '/d']),
    '/a': aPage('A', shared),
    '/b': aPage('B', shared),
    '/c': aPage('C', aSentence('c')),
    '/d': aPage('D', aSentence('d')),
  });
  try {
    const reader = await aReader(stack);
    const { sourceId } = await reader.addSite(`${site.url}/`);
    const file = await reader.addFile('a.txt', aSentence('files'));
    await reader.ended(file.sourceId);
    await reader.ended(sourceId);
    const embedded = () =>
      eventually(async () => {
        const { counts } = await reader.findSource(sourceId);
        expect(counts.embedded).toBe(counts.passages);
      });
    await embedded();
    const holder = (await reader.passagesOf(sourceId)).find(({ text }) => text.includes('everybody'))?.url ?? '';
    site.pages.set('/', aPage('Start', `${aSentence('the start')}</p>${FAQ('Sometimes')}<p>`, ['/a', '/b', '/d']));
    site.pages.set('/a', aPage('A', holder.endsWith('/a') ? aSentence('a') : shared));
    site.pages.set('/b', aPage('B', holder.endsWith('/b') ? aSentence('b') : shared));
    site.pages.delete('/d');
    for (const run of [2, 3, 4]) {
      await reader.refresh(sourceId);
      await reader.ended(sourceId, run);
    }
    const links = Array.from({ length: 12 }, (_, nth) => `/broken-${nth}`);
    site.pages.set('/', aPage('Start', aSentence('another start'), ['/a', ...links]));
    for (const link of links) site.pages.set(link, (_request, response) => response.destroy());
    await reader.refresh(sourceId);
    await reader.ended(sourceId, 5);
    await embedded();
    await reader.remove(sourceId);
    await eventually(async () => expect(await reader.countLeft(sourceId)).toMatchObject({ sources: 0 }));
  } finally {
    await site.close();
  }
};

/** Finds due sources while there are more than it reads: new runs, and those that killed workers have left. */
const findManyDue = async (assistantId: string): Promise<void> => {
  const sources = database.collection<{ _id: string }>('sources');
  const source = await sources.findOne({ state: 'ready' });
  const due = [{ nextAt: new Date(0) }, { lease: { token: '', until: new Date(0) } }];
  const rows = due.map((more) => ({ ...source, assistantId, removedAt: null, ...more }));
  const many = Array.from({ length: 20 }, () => rows).flat();
  await sources.insertMany(many.map((row) => ({ ...row, _id: randomUUID() })));
  expect(await stack.service.sourceRuns.findDue({ limit: 1, except: [] })).toHaveLength(1);
};

/** Turns with quotas and a provider with a budget, and a reservation of a process that is gone. */
const limitAndCallProvider = async (): Promise<void> => {
  const provider = await openProvider();
  const limits = { turnsPerMonth: 1, tokensPerDay: 100_000 };
  const { assistantId, keyId, chat } = await anAssistant(stack, { input: limits });
  await stack.service.assistants.updateApiKey(keyId, { turnsPerMonth: 2 });
  const { baseUrl } = provider;
  await stack.service.assistants.setEngine(assistantId, { kind: 'openai', baseUrl, model: 'm', maxTokens: 100 });
  for (let nth = 0; nth < 3; nth += 1) await chat(aTurn());
  await provider.close();
  const owner = await anOperator(stack);
  expect((await owner.get(`/assistants/${assistantId}/limits`)).status).toBe(200);
  const rows = database.collection('allowances');
  const [at, turnId] = [new Date(0), randomUUID()];
  const lost = { $set: { pendingFrom: at, 'pending.lost': { at, turns: [{ turnId, messageId: turnId }] } } };
  await rows.updateOne({ target: keyId }, lost);
  await eventually(async () =>
    expect(await rows.countDocuments({ target: keyId, 'pending.lost': { $exists: true } })).toBe(0),
  );
};

type Go = <Body = Record<string, string>>(method: string, path: string, body?: unknown) => Promise<Body>;

/** Two drafts, one published and one discarded, with each kind of change. */
const changeDraft = async (own: string, go: Go): Promise<void> => {
  const add = () => go('POST', `${own}/knowledge`, anEntry());
  const [first, second] = [await add(), await add()];
  await go('PATCH', own, { drafts: true });
  await add();
  const { entryId } = await add();
  await go('PUT', `${own}/knowledge/${entryId}?seen=1`, anEntry({ answer: 'From 11.' }));
  await go('PUT', `${own}/knowledge/${first['entryId']}`, anEntry({ answer: 'From 10.' }));
  for (const gone of [entryId, second['entryId']]) await go('DELETE', `${own}/knowledge/${gone}`);
  await go('PATCH', own, { instructions: 'Be short.' });
  const addSource = () => go('POST', `${own}/sources`, { kind: 'page', url: 'http://127.0.0.1:9/' });
  const source = `${own}/sources/${(await addSource())['sourceId']}`;
  await go('DELETE', `${own}/sources/${(await addSource())['sourceId']}`);
  for (const path of ['?draft=true', '/knowledge?draft=true', '/draft', '/versions']) await go('GET', `${own}${path}`);
  const { evaluationId } = await go('POST', `${own}/evaluations`, { real: { limit: 2 }, against: 'draft' });
  await eventually(async () =>
    expect(await go('GET', `${own}/evaluations/${evaluationId}`)).toMatchObject({ done: 2 }),
  );
  await go('POST', `${own}/draft/publish`, { name: 'First' });
  const text = JSON.stringify([anEntry()]);
  await go('POST', `${own}/knowledge-import`, { format: 'json', text, replace: true });
  await go('GET', `${own}/knowledge?draft=true`);
  await go('DELETE', source);
  await go('POST', `${source}/keep`);
  await go('DELETE', source);
  await go('POST', `${own}/draft/publish`, {});
  await go('POST', `${own}/versions/2/roll-back`, {});
  await add();
  await addSource();
  await go('DELETE', `${own}/draft`);
  await go('PATCH', own, { drafts: false });
};

/** Uses every part of the service: as operators, callers and receivers do, and with the sweeps of the workers. */
const walk = async (): Promise<void> => {
  await scene?.close();
  scene = await openScene();
  const { assistantId, endpointId, sourceId, delivered, rejected, queued, escalated } = scene;
  const told = { url: 'http://127.0.0.1:9/', events: ['conversation.erased'] };
  await stack.service.endpoints.addEndpoint(assistant.assistantId, told);
  const owner = await anOperator(stack);
  const own = `/assistants/${assistantId}`;
  type Ids = Record<string, string>;
  const go = async <Body = Ids>(method: string, path: string, body?: unknown): Promise<Body> => {
    const answer = await owner.call<Body>(method, path, body);
    expect([method, path, answer.status < 300 ? 'well' : answer]).toEqual([method, path, 'well']);
    return answer.body;
  };
  const get = <Body = Ids>(path: string) => go<Body>('GET', path);
  const post = <Body = Ids>(path: string, body: unknown = {}) => go<Body>('POST', path, body);

  const { operatorId } = owner;
  const filters =
    'status=open status=resolved tag=parcel channel=webhook language=de snoozed=true snoozed=false limit=1';
  const searches = `search=delivery search=long search=${escalated} sessionId=crm-4711 attribute=plan:pro assignee=none`;
  for (const query of `${filters} ${searches} assignee=${operatorId}`.split(' ')) {
    await get(`/assistants/${assistantId}/conversations?${query}`);
    if (!query.startsWith('sessionId')) await get(`/inbox?${query}`);
  }
  const pages =
    'agents tags canned-replies channel channel/calls keys knowledge knowledge?search=open knowledge-conflicts';
  const more = 'knowledge-status endpoints misses overview overview?days=30 usage deliveries deliveries?outcome=queued';
  const outcomes = 'outcome=sending outcome=rejected outcome=delivered status=502 event=conversation.created';
  const which = `endpointId=${endpointId} conversationId=${escalated} eventId=${delivered.split(':')[0]}`;
  const deliveries = `${outcomes} ${which} from=2026-01-01T00:00:00Z`.split(' ').map((query) => `deliveries?${query}`);
  for (const page of [...`${pages} ${more}`.split(' '), ...deliveries]) await get(`${own}/${page}`);
  await get(`/inbox?search=umbrellas`);
  await get('/inbox/waiting');
  const ids = [escalated, escalated.slice(0, 13), delivered, delivered.split(':')[0], queued, sourceId, 'long'];
  for (const id of ids) await get(`/work?search=${id}`);
  await get('/queues');
  const trails = `/audit /audit?operatorId=${operatorId} /audit?target=${assistantId}`;
  const single = `/deliveries/${delivered} /deliveries/${rejected} /deliveries/${queued} /endpoints/${endpointId}`;
  const one = `/conversations/${escalated}`;
  const rest = `/assistants /operators /tokens /session /session/current ${one} ${one}/events ${one}/export`;
  for (const path of `${trails} ${single} ${rest} /alerts /alerts?state=open /alerts?state=ended`.split(' '))
    await get(path);
  for (const file of ['usage.csv', 'export']) {
    const headers = { Cookie: owner.cookie() ?? '' };
    const { status, body } = await fetch(`${stack.url}/operator/v1${own}/${file}`, { headers });
    expect([file, status]).toEqual([file, 200]);
    // The first piece of an export has some conversations.
    const reader = body?.getReader();
    await reader?.read();
    await reader?.cancel();
  }
  const { alerts } = await get<{ alerts: Ids[] }>('/alerts?limit=1');
  await post(`/alerts/${alerts[0]?.['alertId']}/acknowledge`);

  const said = await assistant.chat({ session_id: 'long', message: ask(0) }, keyed('key-0'));
  const { body: long } = await assistant.history(said.body.conversationId);
  const unknown = `${said.body.conversationId.slice(0, 24)}${Date.now().toString().slice(-12)}`;
  for (const turnId of [long.messages[0]?.turnId, long.messages.at(-1)?.turnId]) {
    await get(`/turns/${turnId}`);
    await assistant.call(`/api/v1/turns/${turnId}`);
  }
  await assistant.call(`/api/v1/turns/${unknown}`);
  await assistant.call('/api/v1/events');
  const { listEnded } = stack.service.aside.deliveries;
  const { cursor } = await listEnded({ assistantId, limit: 2 });
  await listEnded({ assistantId, limit: 2, outcome: 'delivered', ...(cursor !== null && { after: cursor }) });
  for (const query of ['', '?updated_after=2026-01-01T00:00:00Z&limit=3', '?session_id=long'])
    await assistant.call(`/api/v1/conversations${query}`);
  await limitAndCallProvider();
  for (const nth of [30, 30]) await assistant.chat({ session_id: 'long', message: ask(nth) });

  const { conversationId } = (await assistant.chat(aTurn({ message: 'Do you sell boats?' }))).body;
  const path = `/conversations/${conversationId}`;
  await assistant.call(`/api/v1${path}/attributes`, { body: { plan: 'pro' } });
  await assistant.call(`/api/v1${path}/escalate`, { body: {} });
  await post(`${path}/assign`, { operatorId });
  await post(`${path}/snooze`, { until: new Date(Date.now() + 86_400_000).toISOString() });
  await post(`${path}/read`, { seq: 1 });
  await post(`${path}/tags`, { tag: 'vip', color: null });
  await go('DELETE', `${path}/tags/vip`);
  const { noteId } = await post(`${path}/notes`, { content: 'x' });
  await go('DELETE', `${path}/notes/${noteId}`);
  await post(`${path}/notes`, { content: 'y' });
  await post(`${path}/presence`, { state: 'reading' });
  await post(`${path}/replies`, { content: 'Hello' });
  for (const name of ['hand-back', 'resolve', 'reopen']) await post(`${path}/${name}`);
  await go('DELETE', path);
  await assistant.call(`/api/v1/conversations/${said.body.conversationId}`, { method: 'DELETE' });

  await go('PATCH', `${own}/web`, { enabled: true, origins: [SITE] });
  await post(`${own}/web/identity`);
  await go('DELETE', `${own}/web/identity`);
  const visitor = await eventually(() => aVisitor(stack, assistantId));
  await visitor.say('hello');
  await visitor.read('?after=0');

  await go('PUT', `${own}/tags`, { tags: [{ tag: 'parcel', color: '#1e90ff' }] });
  const { cannedReplyId } = await post(`${own}/canned-replies`, { title: 'a', content: 'b' });
  await go('PATCH', `/canned-replies/${cannedReplyId}`, { title: 'c' });
  await go('DELETE', `/canned-replies/${cannedReplyId}`);
  await post(`/deliveries/${rejected}/resend`, { number: 1, mayDouble: true });
  const recover = (more: object) => post(`/endpoints/${endpointId}/recoveries`, { from: recently(), ...more });
  await recover({ dryRun: true, outcomes: ['rejected'] });
  const { recovery } = (await recover({ outcomes: ['rejected', 'unknown'] })) as unknown as { recovery: Ids };
  const recoveryPath = `/recoveries/${recovery['recoveryId']}`;
  for (const step of ['pause', 'resume']) await post(`${recoveryPath}/${step}`);
  await eventually(async () => expect(await get<Ids>(recoveryPath)).toMatchObject({ state: 'done' }));
  await get(`/endpoints/${endpointId}/recoveries`);
  await post(`/endpoints/${endpointId}/test`);
  await post(`/endpoints/${endpointId}/rotate`, { overlapHours: 1 });
  await go('PATCH', `/endpoints/${endpointId}`, { enabled: true, headers: [], ratePerSecond: 100 });
  await post(`/endpoints/${queued.split(':')[1]}/resume`);
  const missing = `/endpoints/${rejected.split(':')[1]}/recoveries`;
  await post(missing, { from: recently(), outcomes: ['not_sent', 'rejected'] });
  await eventually(async () => {
    const { recoveries } = await get<{ recoveries: { state: string; sent: object }[] }>(missing);
    expect(Object.values(recoveries[0]?.sent ?? {}).some((count) => count > 0)).toBe(true);
  });
  const { misses } = await get<{ misses: { missId: string }[] }>(`${own}/misses`);
  const { entryId } = await post(`${own}/knowledge`, { ...anEntry(), fromMiss: misses[0]?.missId });
  await go('PUT', `${own}/knowledge/${entryId}`, anEntry({ answer: 'From 10.' }));
  await go('DELETE', `${own}/knowledge/${entryId}`);
  await post(`${own}/misses/${misses[1]?.missId}/dismiss`);
  const source = `${own}/sources/${sourceId}`;
  await stack.service.assistants.raisePassages(assistantId, async () => ({ live: 2, drafted: 0 }));
  await eventually(async () => {
    const asked = { sessionId: 'passages', message: `Can I pause a subscription? ${randomUUID()}` };
    const turn = await post(`${own}/playground`, asked);
    const { messages } = await get<HistoryBody>(`/conversations/${turn['conversationId']}`);
    expect(messages.at(-1)).toMatchObject({ why: { passages: expect.any(Array) } });
  });
  for (const page of [`${own}/sources`, source, `${source}/pages?state=failed`]) await get(page);
  for (const list of [`${source}/pages`, `${own}/proposed-entries`]) {
    const { nextCursor } = await get(`${list}?limit=1`);
    await get(`${list}?limit=1&cursor=${nextCursor}`);
  }
  const { proposals } = await get<{ proposals: Ids[] }>(`${own}/proposed-entries?sourceId=${sourceId}`);
  await post(`${own}/proposed-entries/accept`, { proposalIds: [proposals[0]?.['proposalId']] });
  await post(`${own}/proposed-entries/dismiss`, { proposalIds: null });
  await owner.call('POST', `${own}/source-files?name=a.md`, '', { 'Content-Type': 'application/octet-stream' });
  await post(`${own}/sources`, { kind: 'page', url: 'http://127.0.0.1:9/' });
  await go('PATCH', source, { schedule: 'weekly' });
  await post(`${source}/refresh`);
  await go('DELETE', source);
  await go('PATCH', own, { name: 'Renamed' });
  await changeDraft(own, go);
  const { setId } = await post(`${own}/question-sets`, { name: 'Release' });
  const questions = `${own}/question-sets/${setId}`;
  const expecting = { question: 'When are you open?', expected: { kind: 'none' } };
  const { caseId } = await post(`${questions}/cases`, { ...expecting, from: { missId: misses[1]?.missId } });
  await go('PUT', `${questions}/cases/${caseId}`, expecting);
  await post(`${questions}/import`, { format: 'csv', text: 'question,expect\nWhy?,none\n', replace: true });
  await go('PATCH', questions, { name: 'Renamed' });
  for (const query of ['', '?version=1']) await get(`${questions}${query}`);
  await get(`${own}/question-sets`);
  const { evaluationId } = await post(`${own}/evaluations`, { setId });
  const evaluated = async (run: string) => expect((await get(`${own}/evaluations/${run}`))['state']).toBe('done');
  await eventually(() => evaluated(evaluationId ?? ''));
  const { nextCursor } = await get(`${own}/evaluations/${scene.evaluationId}/results?limit=1`);
  await get(`${own}/evaluations/${scene.evaluationId}/results?cursor=${nextCursor}`);
  const real = await post(`${own}/evaluations`, { real: { limit: 20 } });
  await post(`${own}/evaluations/${real['evaluationId']}/stop`);
  const { results } = await get<{ results: { resultId: string }[] }>(`${own}/evaluations/${evaluationId}/results`);
  await post(`${questions}/cases`, { ...expecting, from: { resultId: results[0]?.resultId } });
  await get(`${own}/evaluations`);
  await go('DELETE', `${questions}/cases/${(await get<{ cases: Ids[] }>(questions)).cases[0]?.['caseId']}`);
  await go('DELETE', questions);
  await post(`${own}/playground`, { sessionId: 'try', message: 'What are your opening hours?' });
  const { key } = await post<{ key: { keyId: string } }>(`${own}/keys`, { name: 'k' });
  await go('PATCH', `/keys/${key.keyId}`, { name: 'renamed' });
  await post(`/keys/${key.keyId}/rotate`, { overlapHours: 1 });
  await post(`/keys/${key.keyId}/revoke`);
  await go('PATCH', `${own}/channel`, { connected: true, token: 'verify-me' });
  await post(`${own}/channel/secret-address`);
  await go('DELETE', `${own}/channel/secret-address`);
  const few = await post('/tokens', { name: 'few', scope: 'read', assistantIds: [assistantId] });
  await request(`${stack.url}/operator/v1/alerts`, { bearer: few['secret'] ?? '' });
  const token = await post<{ secret: string; token: { tokenId: string } }>('/tokens', { name: 'r', scope: 'read' });
  await request(`${stack.url}/operator/v1/inbox`, { bearer: token.secret });
  await post(`/tokens/${token.token.tokenId}/revoke`);
  const agent = await anOperator(stack, 'agent');
  await agent.get('/inbox');
  await go('PATCH', `/operators/${agent.operatorId}`, { role: 'owner' });
  await post(`/operators/${agent.operatorId}/link`);
  await go('DELETE', `/operators/${agent.operatorId}/sessions`);
  await go('PATCH', `/operators/${agent.operatorId}`, { disabled: true });
  await owner.call('PUT', '/session/password', { current: PASSWORD, next: `${PASSWORD} again` });
  const old = (await assistant.chat(aTurn())).body;
  await database
    .collection('conversations')
    .updateOne({ conversationId: old.conversationId }, { $set: { updatedAt: new Date(0) } });
  await stack.service.assistants.listKeepDays();
  const unchanged = { assistantId: assistant.assistantId, since: new Date(1), most: 200 };
  expect(await stack.service.conversations.eraseUnchanged(unchanged, () => undefined)).toBe(1);
  // What a killed process leaves of a conversation that is used again.
  const used = (await assistant.chat(aTurn())).body;
  await database.collection<{ _id: string }>('tombstones').insertOne({
    _id: used.conversationId,
    assistantId: assistant.assistantId,
    eventId: randomUUID(),
    erasedAt: new Date(),
    purgeAt: new Date(0),
    purgesLeft: 2,
    unchangedSince: new Date(1),
  } as never);
  // Both later purges, after a minute and after a day.
  const theirs = { assistantId: assistant.assistantId };
  await eventually(async () => {
    await database.collection('tombstones').updateMany(theirs, { $set: { purgeAt: new Date(0) } });
    await stack.service.conversations.purgeAgain();
    expect(await database.collection('tombstones').countDocuments(theirs)).toBe(0);
  });
  const { assistants, endpoints } = stack.service;
  for (const store of [assistants, endpoints])
    for await (const { older } of store.resealSecrets({ dryRun: false })) expect(older).toBe(0);
  for (const page of ['metrics', 'readyz']) await fetch(`${stack.url}/${page}`);
  await eventually(async () =>
    expect(await database.collection<{ _id: string }>('search').findOne({ _id: conversationId })).toBeNull(),
  );
  await readSources();
  await findManyDue(assistantId);
  // A change that the sweeps and the projection find last.
  const last = (await assistant.chat(aTurn({ message: 'Do you sell very large boats?' }))).body;
  await eventually(async () =>
    expect(await database.collection<{ _id: string }>('search').findOne({ _id: last.conversationId })).not.toBeNull(),
  );
};

const fieldsIn = (filter: unknown): string =>
  filter !== null && typeof filter === 'object'
    ? Object.entries(filter)
        .map(([name, value]) => {
          const inner = name.startsWith('$') && Array.isArray(value) && typeof value[0] === 'object';
          return inner ? `${name}(${[...new Set(value.map(fieldsIn))].join(' | ')})` : name;
        })
        .join(' ')
    : '';

const filterOf = (one: Profiled): unknown => {
  const command = { ...one.command, ...one.originatingCommand } as Record<string, unknown>;
  const [stage] = (command['pipeline'] ?? []) as { $match?: unknown }[];
  return command['filter'] ?? command['query'] ?? command['q'] ?? stage?.$match ?? {};
};

/** A statement without its values. */
const shapeOf = (one: Profiled): string => {
  const command = { ...one.command, ...one.originatingCommand } as Record<string, unknown>;
  const filter = filterOf(one);
  const sort = command['sort'] ? ` sort ${Object.keys(command['sort']).join(' ')}` : '';
  const op = one.op === 'command' ? (Object.keys(one.command)[0] ?? '') : one.op;
  return `${collectionIn(one)} ${op === 'getmore' ? 'query' : op}: ${fieldsIn(filter)}${sort}`;
};

const foundBy = ({ nreturned = 0, nMatched = 0, ndeleted = 0 }: Profiled): number => nreturned + nMatched + ndeleted;

const CALL =
  /\b(\w+)\s*\.(find|findOne|aggregate|distinct|countDocuments|updateOne|updateMany|deleteOne|deleteMany|insertOne|insertMany|bulkWrite|findOneAndUpdate|findOneAndDelete|findById)(?:<[\w, ]+>)?\((?!\(?[^()]*\)?\s*=>)/g;

/**
 * Runs `work`, and returns the calls of MongoDB in the source that were not made meanwhile. V8 counts what was run. So a
 * statement that the walk does not reach is noticed.
 */
const findNotMade = async (work: () => Promise<unknown>): Promise<string[]> => {
  setFlagsFromString('--no-flush-bytecode'); // a function that is not used for a while would lose its count
  const inspector = new Session();
  inspector.connect();
  await inspector.post('Profiler.enable');
  await inspector.post('Debugger.enable');
  await inspector.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  await work();
  const { result } = await inspector.post('Profiler.takePreciseCoverage');
  const notMade: string[] = [];
  for (const { url, functions, scriptId } of result) {
    const file =
      /\/((?:src|workers)\/(?!.*node_modules).*\.ts)$/.exec(url)?.[1] ?? /^((?:src|workers)\/.*\.ts)$/.exec(url)?.[1];
    if (file === undefined) continue;
    const { scriptSource } = await inspector.post('Debugger.getScriptSource', { scriptId });
    const ranges = functions.flatMap((one) => one.ranges);
    for (const { index, 0: text, 1: name, 2: method } of scriptSource.matchAll(CALL)) {
      const at = index + text.length;
      const [innermost] = ranges
        .filter(({ startOffset, endOffset }) => startOffset <= at && at < endOffset)
        .toSorted((a, b) => a.endOffset - a.startOffset - (b.endOffset - b.startOffset));
      if (innermost?.count === 0) notMade.push(`${file}: ${name}.${method}`);
    }
  }
  inspector.disconnect();
  return notMade;
};

/** Statements that read a whole collection, or much more than they find. */
const heavyOf = (sent: Profiled[]): Record<string, object> => {
  const isHeavy = (one: Profiled): boolean =>
    one.planSummary?.includes('COLLSCAN') === true || examinedBy(one) > READ_MAX + READ_FOR_EACH * foundBy(one);
  const heavy = new Map<string, object>();
  for (const one of sent.filter(isHeavy)) {
    const shape = shapeOf(one);
    if (EXCEPTIONS.some(([statement]) => statement.test(shape))) continue;
    heavy.set(shape, { read: examinedBy(one), found: foundBy(one), plan: one.planSummary?.slice(0, 100) });
  }
  return Object.fromEntries(heavy);
};

/** The shard keys that docs/scaling.md tells operators to set. */
const shardKeys = (): Map<string, string> => {
  const page = readFileSync('docs/scaling.md', 'utf8');
  const named = page.matchAll(/sh\.shardCollection\("parley\.(\w+)", \{ (\w+): /g);
  return new Map([...named].map(([, name = '', key = '']) => [name, key]));
};

/** True if a filter has one value, some values or a range of the field, so that a router knows its shards. */
const targets = (filter: unknown, field: string): boolean => {
  if (filter === null || typeof filter !== 'object') return false;
  const { [field]: own, $and = [] } = filter as Record<string, unknown> & { $and?: unknown[] };
  return own !== undefined || $and.some((part) => targets(part, field));
};

/** Statements on sharded collections that go to every shard. */
const toAllShards = (sent: Profiled[]): string[] => {
  const keys = shardKeys();
  const isTargeted = (one: Profiled): boolean =>
    one.op === 'insert' || targets(filterOf(one), keys.get(collectionIn(one)) as string);
  const onSharded = sent.filter((one) => keys.has(collectionIn(one)));
  return [...new Set(onSharded.filter((one) => !isTargeted(one)).map(shapeOf))];
};

const isToAllShards = (shape: string): boolean => TO_EVERY_SHARD.some(([statement]) => statement.test(shape));

test('a turn, its delivery and those who read it use indexes, and the shard that has the document', async () => {
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistant.assistantId, { url: receiver.url });
  const owner = await anOperator(stack);
  const own = `/assistants/${assistant.assistantId}`;
  const sent = await profileStatements(stack, async () => {
    const { conversationId } = (await assistant.chat(aTurn(), keyed('once'))).body;
    await receiver.waitFor((received) => received.length > 1);
    await assistant.history(conversationId);
    const lists = [`/inbox`, `${own}/conversations?status=open`, `${own}/deliveries`, `${own}/overview`, '/alerts'];
    for (const path of [...lists, `/conversations/${conversationId}`]) expect((await owner.get(path)).status).toBe(200);
    await assistant.call(`/api/v1/conversations/${conversationId}`, { method: 'DELETE' });
  });
  await receiver.close();
  expect(new Set(sent.map(shapeOf)).size).toBeGreaterThan(40);
  expect(heavyOf(sent)).toEqual({});
  expect(toAllShards(sent).filter((shape) => !isToAllShards(shape))).toEqual([]);
});

let sent: Profiled[] = [];

longTest('every statement is served by an index and reads little more than it finds', async () => {
  let notMade: string[] = [];
  sent = await profileStatements(stack, async () => {
    notMade = await findNotMade(walk);
  });

  expect(heavyOf(sent)).toEqual({});
  const shapes = new Set(sent.map(shapeOf));
  const isSent = (statement: RegExp): boolean => [...shapes].some((shape) => statement.test(shape));
  expect(EXCEPTIONS.filter(([statement]) => !isSent(statement))).toEqual([]);
  expect(shapes.size).toBeGreaterThan(150);

  const unread: string[] = [];
  for (const name of await collections()) {
    type Usage = { name: string; accesses: { ops: number }; spec: { expireAfterSeconds?: number } };
    const indexes = await database
      .collection(name)
      .aggregate<Usage>([{ $indexStats: {} }])
      .toArray();
    for (const { name: index, accesses, spec } of indexes)
      if (accesses.ops === 0 && spec.expireAfterSeconds === undefined) unread.push(`${name} ${index}`);
  }
  expect(unread.filter((index) => !NOT_READ.includes(index))).toEqual([]);
  expect(notMade.filter((call) => !(call in NOT_MADE))).toEqual([]);
});

longTest('turns and deliveries send each statement to the shard that has its document', async () => {
  const keys = shardKeys();
  expect([...keys.keys()]).toEqual(['conversations', 'messages', 'deliveries', 'search', 'idempotencyKeys']);
  expect(sent.filter((one) => keys.has(collectionIn(one))).length).toBeGreaterThan(500);

  const toAll = toAllShards(sent);
  expect(toAll.filter((shape) => !isToAllShards(shape))).toEqual([]);
  for (const [statement, reason] of TO_EVERY_SHARD)
    expect([reason, toAll.some((shape) => statement.test(shape))]).toEqual([reason, true]);

  // A shard checks only its own documents, so only the shard key itself can be unique.
  for (const name of keys.keys()) {
    const indexes = await database.collection(name).indexes();
    expect(indexes.filter(({ unique }) => unique).map((index) => `${name} ${index.name}`)).toEqual([]);
  }
});
