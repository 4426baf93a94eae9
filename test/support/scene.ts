import { randomUUID } from 'node:crypto';
import { SHOP } from '../../scripts/quickstart/shop.ts';
import type { AssistantInput } from '../../src/assistants/assistant.ts';
import { isFinal } from '../../src/events/delivery.ts';
import { eventually } from './eventually.ts';
import { addPastMinutes } from './past-minutes.ts';
import { openReceiver, type Receiver } from '../kit/receiver.ts';
import { addPages, addPassages, addProposals, setSource } from './sources.ts';
import type { Stack } from './stack.ts';

export const OWNER = { email: 'ada@harbour-roasters.example', password: 'correct horse battery' };

/** A service after some weeks of use, with good and bad examples on every page. */
export type Scene = {
  assistantId: string;
  endpointId: string;
  /** A website that was read twice. */
  sourceId: string;
  /** A question set, and what an evaluation of it found. */
  setId: string;
  evaluationId: string;
  /** An assistant with a published version and a draft. */
  draftedId: string;
  comparedId: string;
  /** Ids of a delivered, a rejected and a queued delivery. */
  delivered: string;
  rejected: string;
  queued: string;
  /** A conversation that waits for a person. */
  escalated: string;
  cookie: string;
  close: () => Promise<void>;
};

type Target = {
  url: string;
  service: Pick<Stack['service'], 'assistants' | 'endpoints' | 'operators' | 'deliveries' | 'mongo' | 'sources'>;
};

const CONVERSATIONS = [
  ['When are you open?', 'And is there parking?', 'Thanks!'],
  ['What does delivery cost?', 'How long does delivery take?'],
  ['Where is my order?', 'I want to talk to a person'],
  ['How can I return something?'],
  ['Do you have decaf?', 'Which grinder do you recommend for filter coffee?'],
  ['Wann habt ihr offen?'],
];

const poster = (url: string, path: string, bearer: string | null) => async (body: unknown) => {
  const headers = { 'Content-Type': 'application/json', ...(bearer && { Authorization: `Bearer ${bearer}` }) };
  const response = await fetch(`${url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
  return (await response.json()) as { conversationId?: string };
};

/** Calls the operator API like the owner's browser. */
const anOwner = async ({ url, service }: Target) => {
  await service.operators.createOperator({ ...OWNER, role: 'owner' });
  const headers = { 'Content-Type': 'application/json', Origin: url };
  const send = (path: string, body: unknown, more: Record<string, string> = {}, method = 'POST') =>
    fetch(`${url}/operator/v1${path}`, {
      method,
      headers: { ...headers, ...more },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
  const signedIn = await send('/session', OWNER);
  const cookie = signedIn.headers
    .getSetCookie()
    .find((one) => one.startsWith('parley='))
    ?.split(';')[0];
  if (!cookie) throw new Error(`signing in was answered with ${signedIn.status}`);
  const call = async <Answer>(path: string, given: unknown = {}, method = 'POST'): Promise<Answer> => {
    const body = method === 'GET' ? undefined : given;
    const answer = await send(path, body, { Cookie: cookie }, method);
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    return (await answer.json()) as Answer;
  };
  return { cookie, call };
};
type Owner = Awaited<ReturnType<typeof anOwner>>;

const makeAssistants = async ({ call }: Owner, { service: { assistants } }: Target): Promise<string> => {
  const { assistantId } = await call<{ assistantId: string }>('/assistants', {
    ...(SHOP.assistant as AssistantInput),
    instructions: 'Friendly, brief, never promises a date. Prices always with tax.',
    turnsPerMonth: 20_000,
    tokensPerDay: 200_000,
  });
  await assistants.addKnowledge(assistantId, SHOP.knowledge);
  await call(`/assistants/${assistantId}/knowledge`, {
    question: 'Until when are you open today?',
    answer: 'Until 17.',
    variants: ['What are the opening hours'],
  });
  await call('/assistants', { name: 'Wholesale desk', languages: ['en', 'de'] });
  const { assistantId: third } = await call<{ assistantId: string }>('/assistants', { name: 'Café Pier 4' });
  await call(`/assistants/${third}/channel`, { connected: true, token: null }, 'PATCH');
  return assistantId;
};

const makeDraft = async ({ call }: Owner): Promise<Pick<Scene, 'draftedId' | 'comparedId'>> => {
  const input = { name: 'Tea house', languages: ['en'], drafts: true };
  const { assistantId } = await call<{ assistantId: string }>('/assistants', input);
  const own = `/assistants/${assistantId}`;
  const add = (question: string, answer: string) =>
    call<{ entryId: string }>(`${own}/knowledge`, { question, answer, variants: [] });
  const { entryId } = await add('When are you open?', 'Every day from 10 to 18.');
  await add('Which teas do you have?', 'Forty kinds, from Assam to Yunnan.');
  await call(`${own}/draft/publish`, { name: 'Opening', note: 'The first answers, checked by Cleo.' });
  const hours = { question: 'When are you open?', answer: 'Every day from 8 to 20.', variants: [] };
  await call(`${own}/knowledge/${entryId}`, hours, 'PUT');
  await call(`${own}/draft/publish`, { name: 'Longer hours' });
  await call(`${own}/versions/2/roll-back`, { note: 'Nobody came before ten.' });
  const winter = { question: 'When are you open?', answer: 'From October on, every day from 11 to 17.', variants: [] };
  await call(`${own}/knowledge/${entryId}`, winter, 'PUT');
  await add('Do you have a terrace?', 'Yes, with forty seats in the sun.');
  await call(own, { answering: 'careful', instructions: 'Warm, brief.' }, 'PATCH');
  const { setId } = await call<{ setId: string }>(`${own}/question-sets`, { name: 'Every release' });
  for (const [question, words] of [
    ['When are you open?', 'every day from 10 to 18'],
    ['Which teas do you have?', 'forty kinds'],
    ['Do you have a terrace?', 'yes'],
  ])
    await call(`${own}/question-sets/${setId}/cases`, { question, expected: { kind: 'text', text: words } });
  const evaluate = async (against: 'live' | 'draft'): Promise<string> => {
    const { evaluationId } = await call<{ evaluationId: string }>(`${own}/evaluations`, { setId, against });
    await eventually(async () => {
      const { state } = await call<{ state: string }>(`${own}/evaluations/${evaluationId}`, undefined, 'GET');
      if (state !== 'done') throw new Error('the evaluation is not over');
    });
    return evaluationId;
  };
  await evaluate('live');
  return { draftedId: assistantId, comparedId: await evaluate('draft') };
};

const makeOperators = async ({ call }: Owner, assistantId: string): Promise<void> => {
  const at = (name: string) => `${name}@harbour-roasters.example`;
  for (const body of [
    { email: at('bo'), role: 'agent', assistantIds: [assistantId] },
    { email: at('cleo'), role: 'owner' },
    { email: at('dev'), role: 'agent' },
    { email: at('eve'), role: 'agent', assistantIds: [] },
  ]) {
    await call('/operators', body);
  }
  await call('/tokens', { name: 'Nightly report', scope: 'read', assistantIds: [assistantId] });
  await call('/tokens', { name: 'Deployment', scope: 'manage' });
};

const makeKeys = async ({ call }: Owner, assistantId: string): Promise<string> => {
  const make = (name: string) =>
    call<{ apiKey: string; key: { keyId: string } }>(`/assistants/${assistantId}/keys`, {
      name,
      limitPerMinute: 600,
      turnsPerMonth: 1_000,
    });
  const { key } = await make('Old till');
  await call(`/keys/${key.keyId}/revoke`);
  await make('Mobile app');
  return (await make('Shop website')).apiKey;
};

const callChannel = async (owner: Owner, { url }: Target, assistantId: string): Promise<void> => {
  const token = 'vt_scene-token';
  await owner.call(`/assistants/${assistantId}/channel`, { connected: true, token, limitPerMinute: 120 }, 'PATCH');
  const path = `/api/v1/channels/webhook/${assistantId}`;
  const turn = { session_id: 'crm-4711', message: 'When are you open?' };
  await poster(url, path, token)(turn);
  await poster(url, path, 'wrong')(turn);
  await poster(url, path, token)({ session_id: 'crm-4712' });
  await poster(url, path, token)({ ...turn, session_id: 'crm-4713', message: 'What does delivery cost?' });
};

const makeEndpoints = async ({ call }: Owner, assistantId: string, receivers: Receiver[]): Promise<string[]> => {
  const ids: string[] = [];
  for (const [nth, { url }] of receivers.entries()) {
    const path = ['/hooks/parley', '/crm/events', '/archive'][nth];
    const events = [[], ['conversation.escalated', 'tag.added'], ['conversation.created']][nth];
    const made = await call<{ endpoint: { endpointId: string } }>(`/assistants/${assistantId}/endpoints`, {
      url: `${url}${path}`,
      events,
    });
    ids.push(made.endpoint.endpointId);
  }
  return ids;
};

const makeCannedReplies = async ({ call }: Owner, assistantId: string): Promise<void> => {
  const path = `/assistants/${assistantId}/canned-replies`;
  await call(path, { title: 'Greeting', content: 'Hello, this is {{agent}}. How can I help?' });
  await call(path, {
    title: 'Parcel is late',
    content: 'I am sorry that your parcel is late. I have asked the carrier.',
  });
};

const holdConversations = async (owner: Owner, { url }: Target, apiKey: string): Promise<string> => {
  const say = poster(url, '/api/v1/chat', apiKey);
  const conversations: string[] = [];
  for (const messages of CONVERSATIONS) {
    const session_id = `visitor-${randomUUID().slice(0, 8)}`;
    for (const message of messages) {
      const { conversationId = '' } = await say({ session_id, message });
      if (message === messages.at(-1)) conversations.push(conversationId);
    }
  }
  const [first, second, third] = conversations;
  await owner.call(`/conversations/${third}/tags`, { tag: 'parcel', color: '#1e90ff' });
  await owner.call(`/conversations/${second}/resolve`);
  await owner.call(`/conversations/${first}/tags`, { tag: 'visit', color: null });
  await owner.call(`/conversations/${third}/notes`, { content: 'The carrier says that the parcel is in Hamburg.' });
  await owner.call(`/conversations/${third}/replies`, { content: 'Hello, this is Ada. What is your order number?' });
  return third ?? '';
};

const DAY_MS = 86_400_000;

/** Figures of the last weeks, and questions that the assistant could not answer. */
const makeInsights = async ({ service: { mongo } }: Target, assistantId: string): Promise<void> => {
  const hours = Array.from({ length: 29 * 4 }, (_, nth) => {
    const hour = new Date(Math.floor((Date.now() - DAY_MS - nth * (DAY_MS / 4)) / 3_600_000) * 3_600_000);
    const turns = 20 + ((nth * 13) % 17) * 3;
    return {
      _id: `${assistantId}:${hour.toISOString().slice(0, 13)}`,
      assistantId,
      hour,
      turns,
      answered: Math.round(turns * 0.62),
      hedged: Math.round(turns * 0.08),
      offered: Math.round(turns * 0.1),
      notAnswered: Math.round(turns * 0.12),
      other: Math.round(turns * 0.08),
      resolved: nth % 4,
      taught: nth % 9 === 0 ? 1 : 0,
      engineErrors: 0,
      escalated: { user_requested: nth % 3, low_confidence: nth % 2 },
      buckets: { 14: turns - 2, 25: 2 },
      deliveries: { delivered: turns * 2, rejected: nth % 5, not_sent: 0, unknown: nth % 7 === 0 ? 1 : 0 },
    };
  });
  await mongo.collection('figures').insertMany(hours as never);
  const conversation = await mongo.collection('conversations').findOne({ assistantId });
  const conversationId = String(conversation?.['conversationId']);
  const miss = (question: string, count: number, answer: string | null) => {
    const at = new Date(Date.now() - count * 3_600_000);
    const examples = [{ conversationId, question, at }];
    const base = { assistantId, conversationId, language: 'en', words: [], vector: null, model: null, state: 'open' };
    const given = answer === null ? null : { conversationId, content: answer, at };
    return { _id: randomUUID(), question, count, firstAt: at, lastAt: at, examples, answer: given, ...base };
  };
  await mongo
    .collection('misses')
    .insertMany([
      miss(
        'Can you grind the beans for a Moka pot?',
        14,
        'Yes. Choose “Moka pot” in the basket, or write it in the note.',
      ),
      miss('Do you ship to the Faroe Islands, and what about customs?', 6, null),
      miss('Is the café dog friendly?', 3, 'Dogs are welcome on the terrace.'),
    ] as never);
};

/** Sources in every state. Returns the id of the one that was read twice. */
const makeSources = async (target: Target, assistantId: string): Promise<string> => {
  const { sources } = target.service;
  const add = (kind: 'site' | 'page') => sources.add(assistantId, { kind, url: 'http://127.0.0.1:9/' });
  async function* bytes(): AsyncGenerator<Buffer> {
    yield Buffer.from('# Handbook');
  }
  const site = await add('site');
  const file = await sources.addFile(assistantId, 'Handbook for the café, 2026.pdf', bytes());
  const [running, failed] = [await add('site'), await add('page')];
  const readAt = new Date(Date.now() - 3 * 3_600_000);
  const read = { state: 'ready' as const, run: 1, live: 1, startedAt: readAt, endedAt: readAt, nextAt: null };
  const help = 'https://help.harbour-roasters.example';
  await setSource(target, site, {
    ...read,
    run: 2,
    live: 2,
    name: 'Help pages',
    url: `${help}/`,
    schedule: 'daily',
    exclude: ['/archive/**'],
    nextAt: new Date(Date.now() + 21 * 3_600_000),
    counts: {
      found: 0,
      read: 4,
      unchanged: 31,
      skipped: 2,
      failed: 1,
      gone: 1,
      passages: 212,
      embedded: 212,
    },
    changed: { added: 3, changed: 1, removed: 1 },
  });
  const pages = ['brewing', 'delivery', 'grinders', 'returns', 'subscriptions', 'wholesale'];
  await addPages(
    target,
    site,
    pages.map((name) => ({ url: `${help}/${name}`, title: name.charAt(0).toUpperCase() + name.slice(1), run: 2 })),
  );
  const missing = {
    code: 'http_status',
    message: 'The server answered 500. Ask whoever runs the website, then refresh.',
  };
  const hidden = { code: 'noindex', message: 'The page asks not to be indexed.' };
  await addPages(target, site, [
    { url: `${help}/contact`, title: null, state: 'failed', error: missing },
    { url: `${help}/imprint`, title: 'Imprint', state: 'skipped', error: hidden },
    { url: `${help}/summer-sale`, title: 'Summer sale', state: 'gone' },
    { url: `${help}/warranty`, title: 'Warranty', state: 'unchanged' },
  ]);
  await addPassages(target, site, [
    'Grind the beans just before you brew.',
    'A subscription can be paused at any time.',
  ]);
  await setSource(target, file, {
    ...read,
    counts: { ...site.counts, found: 0, read: 1, passages: 640, embedded: 212 },
  });
  await setSource(target, running, {
    state: 'running',
    run: 1,
    live: 1,
    name: 'Brewing guides',
    nextAt: null,
    startedAt: new Date(),
    counts: { ...site.counts, found: 86, read: 34, passages: 310 },
  });
  await setSource(target, failed, {
    state: 'failed',
    run: 1,
    name: 'Price list',
    nextAt: null,
    endedAt: readAt,
    error: {
      code: 'forbidden',
      message: 'robots.txt of the website forbids reading this page. Allow it there, or upload it as a file.',
    },
  });
  await addProposals(target, site, [
    { question: 'Can I pause my subscription?', answer: 'Yes, at any time, up to the day before we pack it.' },
    {
      question: 'Which grind is right for a Moka pot?',
      answer: 'Fine, but coarser than for espresso.',
      url: `${help}/grinders`,
    },
    {
      question: 'How long does delivery take?',
      answer: 'Two to three working days, and one day in the city.',
      state: 'changed',
      entryId: randomUUID(),
    },
  ]);
  return site.sourceId;
};

const makeEvaluation = async ({ call }: Owner, assistantId: string) => {
  const path = `/assistants/${assistantId}`;
  const { setId } = await call<{ setId: string }>(`${path}/question-sets`, { name: 'Every release' });
  for (const [question, expected] of [
    ['When are you open?', { kind: 'text', text: 'open' }],
    ['What does delivery cost?', { kind: 'entry', entry: 'How much is delivery?' }],
    ['Can I bring my dog?', { kind: 'none' }],
    ['How do I brew with a Moka pot?', { kind: 'page', page: 'https://harbour-roasters.example/help/grinders' }],
  ] as const)
    await call(`${path}/question-sets/${setId}/cases`, { question, expected });
  const { evaluationId } = await call<{ evaluationId: string }>(`${path}/evaluations`, { setId });
  await eventually(async () => {
    const { state } = await call<{ state: string }>(`${path}/evaluations/${evaluationId}`, undefined, 'GET');
    if (state !== 'done') throw new Error('the evaluation is running');
  });
  return { setId, evaluationId };
};

export const setScene = async (target: Target): Promise<Scene> => {
  const owner = await anOwner(target);
  const { mongo } = target.service;
  const html = '<html><body><h1>502 Bad Gateway</h1></body></html>';
  const receivers = [
    await openReceiver({
      respond: () => ({ headers: { 'Content-Type': 'application/json' }, body: '{"received":true}' }),
    }),
    await openReceiver({ respond: () => ({ status: 502, headers: { 'Content-Type': 'text/html' }, body: html }) }),
    await openReceiver({ respond: () => ({ status: 410, body: 'gone' }) }),
  ];
  const assistantId = await makeAssistants(owner, target);
  await makeOperators(owner, assistantId);
  const drafted = await makeDraft(owner);
  const apiKey = await makeKeys(owner, assistantId);
  const [endpointId = '', failing = '', gone = ''] = await makeEndpoints(owner, assistantId, receivers);
  await callChannel(owner, target, assistantId);
  await makeCannedReplies(owner, assistantId);
  const escalated = await holdConversations(owner, target, apiKey);
  await makeInsights(target, assistantId);
  await addPastMinutes(target);
  const sourceId = await makeSources(target, assistantId);
  const evaluation = await makeEvaluation(owner, assistantId);
  await owner.call(`/endpoints/${endpointId}/test`);

  const list = async (query: string) => {
    const headers = { Cookie: owner.cookie };
    const answer = await fetch(`${target.url}/operator/v1/assistants/${assistantId}/deliveries?${query}`, { headers });
    return ((await answer.json()) as { deliveries: { deliveryId: string }[] }).deliveries;
  };
  await eventually(async () => {
    const rows = await mongo.collection('deliveries').find({ assistantId }).toArray();
    const unended = rows.filter(({ outcome }) => !isFinal(outcome));
    const waiting = await list('outcome=queued');
    const waitingElsewhere = (
      await Promise.all([endpointId, failing].map((id) => list(`outcome=queued&endpointId=${id}`)))
    ).flat();
    if (unended.length > 0 || waiting.length === 0 || waitingElsewhere.length > 0)
      throw new Error('deliveries are under way');
  });
  const one = async (query: string) => (await list(`limit=1&${query}`))[0]?.deliveryId ?? '';
  return {
    assistantId,
    endpointId,
    sourceId,
    ...evaluation,
    ...drafted,
    delivered: await one(`endpointId=${endpointId}&event=message.received`),
    rejected: await one(`endpointId=${failing}&event=conversation.escalated`),
    queued: await one(`endpointId=${gone}&outcome=queued`),
    escalated,
    cookie: owner.cookie,
    close: async () => {
      await Promise.all(receivers.map((receiver) => receiver.close()));
    },
  };
};
