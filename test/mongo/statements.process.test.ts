import { randomUUID } from 'node:crypto';
import { Session } from 'node:inspector/promises';
import { createConnection, type mongo } from 'mongoose';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { anAssistant, anEntry, aTurn, type HistoryBody, request, type TestAssistant } from '../support/builders.ts';
import { anEmbedderOfTokens } from '../support/embedder.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator, PASSWORD } from '../support/operator-client.ts';
import { collectionIn, examinedBy, OWN, type Profiled, profileStatements } from '../support/profile.ts';
import { type Scene, setScene } from '../support/scene.ts';
import { aReader, QUICK } from '../support/source-reading.ts';
import { useStack } from '../support/stack.ts';
import { aPage, aSentence, openWebsite } from '../support/website.ts';

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
  // One for each running worker.
  embedders: 50,
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
  [/^search query: .*session\) sort/, 'part of a session id: only the index of these assistants, for at most 3 s'],
];

/** Calls in the source that this test does not make, with the reason. */
const NOT_MADE: Record<string, string> = {
  'src/assistants/knowledge-store.ts: knowledge.deleteMany': 'takes back a change that failed half-way',
  'src/conversations/inbox.ts: conversations.find': 'by ids that the search found',
  'src/insights/conversation-search.ts: rows.find': 'by `_id`',
  'src/insights/misses.ts: misses.updateOne': 'by `_id`',
  'src/deliveries/store.ts: deliveries.updateMany': 'by `_id`, in batches',
  'src/sources/passages.ts: tokens.find': 'by `_id`',
  'src/sources/store.ts: proposedEntries.updateMany': 'gives back proposals that could not be accepted',
  'src/sources/runs.ts: passages.updateMany': 'by `_id`',
  'src/sources/runs.ts: pages.updateMany': 'by `_id`, or the pages of a run that failed',
  'src/alerts/alert.ts: alerts.bulkWrite': 'by `_id`',
  // V8 does not count these, in the callback of a transaction. They are among the statements all the same.
  'src/insights/project.ts: rows.bulkWrite': 'by `_id`',
  'src/insights/project.ts: hours.bulkWrite': 'by `_id`',
  'src/insights/project.ts: days.bulkWrite': 'by `_id`',
  'src/sources/runs.ts: sources.updateOne': 'by `_id`',
  'src/sources/runs.ts: indexes.insertOne': 'an insert',
  'src/insights/pending-misses.ts: misses.bulkWrite': 'by `_id`',
  'src/insights/pending-misses.ts: pending.deleteMany': 'by `_id`',
};

/** Indexes that no statement uses: they keep values unique, or MongoDB deletes by them. */
const NOT_READ = ['endpoints assistantId_1_place_1', 'operators links'];

/** Work that the reply worker ends within seconds, so there is nothing to copy. */
const SOON_EMPTY = 'pendingMisses';
/** A service has so few of them that copies would leave none for the walk. */
const FEW = 'operatorTokens';

const HEALTHY = { pause: null, failing: '$$REMOVE', certificateUntil: '$$REMOVE' };

const stack = useStack({
  embedder: () => anEmbedderOfTokens(),
  sourcesWorkers: 1,
  env: { ALERT_WEBHOOK_URL: 'http://127.0.0.1:9', ALERT_WEBHOOK_SECRET: 'nobody listens' },
  timing: { ...QUICK, alertEveryMs: 300, alertEndsAfterMs: 300 },
});
let database: mongo.Db;
let close: () => Promise<void> = async () => undefined;
let assistant: TestAssistant;
let scene: Scene;

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

const ask = (nth: number): string => `Do you repair umbrellas, question ${nth}?`;
const keyed = (key: string) => ({ headers: { 'Idempotency-Key': key } });

/** A service after some weeks of use. The people of an earlier scene get other addresses. */
const openScene = async (): Promise<Scene> => {
  await database.collection('operators').updateMany({}, [{ $set: { email: { $concat: ['before-', '$email'] } } }]);
  return setScene(stack);
};

beforeAll(async () => {
  const connection = await createConnection(stack.env['MONGODB_URL'] ?? '', { appName: OWN }).asPromise();
  database = connection.getClient().db();
  scene = await openScene();
  close = async () => {
    await scene.close();
    await connection.close();
  };
  const owner = await anOperator(stack);
  assistant = await anAssistant(stack);
  for (let nth = 0; nth < 20; nth += 1)
    await assistant.chat({ session_id: 'long', message: ask(nth) }, keyed(`key-${nth}`));
  const [erased, read] = [await assistant.chat(aTurn()), await assistant.chat(aTurn())];
  await assistant.call(`/api/v1/conversations/${erased.body.conversationId}`, { method: 'DELETE' });
  await owner.post(`/conversations/${read.body.conversationId}/read`, { seq: 1 });
  await eventually(async () => {
    const [projected, vectors] = await Promise.all(
      ['search', 'knowledgeVectors'].map((name) => database.collection(name).countDocuments()),
    );
    if (!projected || !vectors || projected < 6 || vectors < 2) throw new Error('the workers are not done');
  });
  const names = await collections();
  // First, because the projection would make some of them from the copied conversations.
  await multiply('search');
  for (const name of names) if (!['search', SOON_EMPTY, FEW].includes(name)) await multiply(name);
}, 300_000);
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

/** Uses every part of the service: as operators, callers and receivers do, and with the sweeps of the workers. */
const walk = async (): Promise<void> => {
  await scene.close();
  scene = await openScene();
  const { assistantId, endpointId, sourceId, delivered, rejected, queued, escalated } = scene;
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
  const trails = `/audit /audit?operatorId=${operatorId} /audit?target=${assistantId}`;
  const single = `/deliveries/${delivered} /deliveries/${rejected} /deliveries/${queued} /endpoints/${endpointId}`;
  const one = `/conversations/${escalated}`;
  const rest = `/assistants /operators /tokens /session /session/current ${one} ${one}/events ${one}/export`;
  for (const path of `${trails} ${single} ${rest} /alerts /alerts?state=open /alerts?state=ended`.split(' '))
    await get(path);
  const csv = `${stack.url}/operator/v1${own}/usage.csv`;
  expect((await fetch(csv, { headers: { Cookie: owner.cookie() ?? '' } })).status).toBe(200);
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
  for (const query of ['', '?updated_after=2026-01-01T00:00:00Z&limit=3', '?session_id=long'])
    await assistant.call(`/api/v1/conversations${query}`);
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

  await go('PUT', `${own}/tags`, { tags: [{ tag: 'parcel', color: '#1e90ff' }] });
  const { cannedReplyId } = await post(`${own}/canned-replies`, { title: 'a', content: 'b' });
  await go('PATCH', `/canned-replies/${cannedReplyId}`, { title: 'c' });
  await go('DELETE', `/canned-replies/${cannedReplyId}`);
  await post(`/deliveries/${rejected}/resend`, { number: 1, mayDouble: true });
  await post(`/endpoints/${endpointId}/test`);
  await post(`/endpoints/${endpointId}/rotate`, { overlapHours: 1 });
  await go('PATCH', `/endpoints/${endpointId}`, { enabled: true });
  await post(`/endpoints/${queued.split(':')[1]}/resume`);
  const { misses } = await get<{ misses: { missId: string }[] }>(`${own}/misses`);
  const { entryId } = await post(`${own}/knowledge`, { ...anEntry(), fromMiss: misses[0]?.missId });
  await go('PUT', `${own}/knowledge/${entryId}`, anEntry({ answer: 'From 10.' }));
  await go('DELETE', `${own}/knowledge/${entryId}`);
  await post(`${own}/misses/${misses[1]?.missId}/dismiss`);
  const source = `${own}/sources/${sourceId}`;
  await stack.service.assistants.raisePassages(assistantId, 2);
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
  await post(`${own}/playground`, { sessionId: 'try', message: 'What are your opening hours?' });
  const { key } = await post<{ key: { keyId: string } }>(`${own}/keys`, { name: 'k' });
  await go('PATCH', `/keys/${key.keyId}`, { name: 'renamed' });
  await post(`/keys/${key.keyId}/rotate`);
  await post(`/keys/${key.keyId}/revoke`);
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
  // Both later purges, after a minute and after a day.
  const theirs = { assistantId: assistant.assistantId };
  await eventually(async () => {
    await database.collection('tombstones').updateMany(theirs, { $set: { purgeAt: new Date(0) } });
    await stack.service.conversations.purgeAgain();
    expect(await database.collection('tombstones').countDocuments(theirs)).toBe(0);
  });
  for (const page of ['metrics', 'readyz']) await fetch(`${stack.url}/${page}`);
  await eventually(async () =>
    expect(await database.collection<{ _id: string }>('search').findOne({ _id: conversationId })).toBeNull(),
  );
  await readSources();
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

/** A statement without its values. */
const shapeOf = (one: Profiled): string => {
  const command = { ...one.command, ...one.originatingCommand } as Record<string, unknown>;
  const [stage] = (command['pipeline'] ?? []) as { $match?: unknown }[];
  const filter = command['filter'] ?? command['query'] ?? command['q'] ?? stage?.$match ?? {};
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

test('every statement is served by an index and reads little more than it finds', { timeout: 300_000 }, async () => {
  let notMade: string[] = [];
  const sent = await profileStatements(stack, async () => {
    notMade = await findNotMade(walk);
  });

  const isHeavy = (one: Profiled): boolean =>
    one.planSummary?.includes('COLLSCAN') === true || examinedBy(one) > READ_MAX + READ_FOR_EACH * foundBy(one);
  const heavy = new Map<string, object>();
  for (const one of sent.filter(isHeavy)) {
    const shape = shapeOf(one);
    if (EXCEPTIONS.some(([statement]) => statement.test(shape))) continue;
    heavy.set(shape, { read: examinedBy(one), found: foundBy(one), plan: one.planSummary?.slice(0, 100) });
  }
  expect(Object.fromEntries(heavy)).toEqual({});
  const shapes = new Set(sent.map(shapeOf));
  for (const [statement] of EXCEPTIONS) expect([...shapes].filter((shape) => statement.test(shape))).not.toEqual([]);
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
