import type { Queue } from 'bullmq';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { Redis } from 'ioredis';
import mongoose from 'mongoose';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { OPERATIONS } from '../../src/api/operator-routes.ts';
import { anAssistant, anEntry, aTurn } from '../support/builders.ts';
import { openCollector } from '../support/collector.ts';
import { eventually } from '../support/eventually.ts';
import { anInhabited, pathIn } from '../support/inhabited.ts';
import { openOperatorClient } from '../support/operator-client.ts';
import { type Kind, type RealProcess, startRealProcess } from '../kit/processes.ts';
import { openEmbeddingsService, openProvider, replyWith } from '../kit/provider.ts';
import { openReceiver, type Receiver } from '../kit/receiver.ts';
import { openRelay, type Relay, through } from '../kit/relay.ts';
import { isLong, sized } from '../support/size.ts';
import { newEnvironment, openStack, type Stack } from '../support/stack.ts';
import { placesOf, storedTexts } from '../support/stored-texts.ts';
import { atSite, SITE, signUser } from '../support/visitor.ts';
import { aPage, aSentence, openWebsite } from '../kit/website.ts';

// Every secret and every text has a word of its own. All processes run at LOG_LEVEL=trace, everything that talks to them
// fails and repeats what it was told, and then each word is looked for wherever something is kept, shown or sent.

/** Settings that are secrets, or contain one. */
const SETTINGS = {
  METRICS_TOKEN: 'zqmetricstoken',
  ENCRYPTION_KEY: 'zqencryptionkeyzqencryptionkeyzq', // 32 bytes, given in base64
  EMBEDDINGS_KEY: 'zqembeddingskey',
  ALERT_WEBHOOK_URL: 'zqalerthookpath',
  ALERT_WEBHOOK_SECRET: 'zqalerthooksecret',
  ALERT_SMTP_URL: 'zqmailpassword',
  OTEL_EXPORTER_OTLP_ENDPOINT: 'zqcollectorpassword',
  OTEL_EXPORTER_OTLP_HEADERS: 'zqcollectorheader',
  MONGODB_URL: 'zqmongopassword',
  REDIS_URL: 'zqredispassword',
};
/** Secrets that people choose. The service makes the others. */
const CHOSEN = {
  verifyToken: 'zqverifytoken',
  providerKey: 'zqproviderkey',
  password: 'zqoperatorpassword',
  header: 'zqownheader',
};

/** What owners read and export. */
const READ = ['exports', 'operators'];
/** A reply also goes to its caller, through Redis. */
const REPLIES = ['answers', 'redis:published', ...READ];
/** Questions wait until they are grouped, for seconds, or for minutes after a hedged answer. */
const MISSES = ['misses', 'pendingMisses'];
/** Where texts may be: collections, keys of Redis, and what is answered or sent. No secret may be anywhere. */
const TEXTS: Record<string, string[]> = {
  zqsession: ['conversations', 'deliveries', 'idempotencyKeys', 'redis:channel-calls', 'search', ...READ],
  zqmessage: ['conversations', 'deliveries', 'messages', ...MISSES, 'search', ...READ],
  zqchannel: ['conversations', 'deliveries', ...MISSES, 'redis:channel-calls', 'search', ...READ],
  zqsite: ['conversations', 'deliveries', ...MISSES, 'search', ...READ],
  zquser: ['conversations', 'deliveries', 'search', ...READ],
  zqattribute: ['conversations', ...READ],
  zqreason: ['conversations', 'deliveries', 'messages', ...READ],
  zqidempotency: ['idempotencyKeys'],
  zqnote: ['notes', ...READ],
  zqwritten: ['conversations', 'messages', ...MISSES, 'search', ...READ],
  zqtag: ['audit', 'conversations', 'deliveries', ...READ],
  zqinstructions: ['assistants', ...READ],
  zqquestion: ['conversations', 'deliveries', 'knowledge', 'messages', ...MISSES, 'search', ...REPLIES],
  zqvariant: ['conversations', 'deliveries', 'knowledge', 'messages', ...MISSES, 'search', ...REPLIES],
  zqanswer: ['conversations', 'knowledge', 'messages', 'search', ...REPLIES],
  zqholding: ['assistants', 'conversations', 'messages', 'search', ...REPLIES],
  zqprovided: ['conversations', 'messages', 'search', ...REPLIES],
  zqreceived: ['deliveries', ...READ],
  zqpage: ['passageIndexes', 'passages', 'sourcePages', ...READ],
  // Receivers take secrets in their address.
  zqquery: ['deliveries', 'endpoints', ...READ],
  zqpath: ['deliveries', 'endpoints', ...READ],
};

type Said = [place: string, text: string];

let stack: Stack;
let processes: Record<'api' | 'reply' | 'delivery' | 'sources', RealProcess>;
let url: string;
let redisRelay: Relay;
let mongoRelay: Relay;
let redisOfAll: Redis;
let alertHook: Receiver;
let collector: Awaited<ReturnType<typeof openCollector>>;
let embeddings: Awaited<ReturnType<typeof openEmbeddingsService>>;
const closers: (() => unknown)[] = [];
/** The collection whose writes lose their answers. */
let losing: string | null = null;
/** What was answered, and what processes told each other through Redis. */
const said: Said[] = [];

/** A mail server that refuses everybody, and repeats what they sent. */
const openMailServer = async (): Promise<{ port: number; server: Server }> => {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.write('220 mail.example ready\r\n');
    socket.on('data', (chunk) => {
      const line = chunk.toString().trim();
      if (/^EHLO/i.test(line)) socket.write('250-mail.example\r\n250 AUTH PLAIN LOGIN\r\n');
      else socket.write(`535 5.7.8 refused: ${line}\r\n`);
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { port: (server.address() as { port: number }).port, server };
};

/** Once told to, a process throws every secret of its settings at once, and the texts in quotes. */
const CRASH = `process.once('SIGUSR2', () => {
  const settings = Object.entries(process.env).filter(([, value]) => /zq|${Buffer.from('zqencryption').toString('base64')}/.test(value));
  const cause = Object.assign(new Error('it said "zqmessage"'), { settings, body: 'zqmessage' });
  throw Object.assign(new Error('cannot go on with ' + settings.map(([, value]) => value).join(' '), { cause }), { settings });
})`;
const start = (kind: Kind, env: Record<string, string>): Promise<RealProcess> =>
  startRealProcess(kind, env, { nodeArgs: ['--import', `data:text/javascript,${encodeURIComponent(CRASH)}`] });

const withUser = (address: string, username: string, password: string): URL =>
  Object.assign(new URL(address), { username, password });

/** The settings of the processes. Stores, collector and mail server know a user with the password. */
const plant = async (env: Record<string, string>): Promise<Record<string, string>> => {
  const name = env['REDIS_PREFIX'] ?? '';
  redisOfAll = new Redis(inject('redisUrl'));
  await redisOfAll.call('ACL', 'SETUSER', name, 'on', `>${SETTINGS.REDIS_URL}`, '~*', '&*', '+@all');
  const user = { createUser: 'parley', pwd: SETTINGS.MONGODB_URL, roles: ['readWrite'] };
  // On a slow disk, these take longer than any command of the service may.
  const patient = await mongoose.mongo.MongoClient.connect(env['MONGODB_URL'] ?? '');
  await patient.db().command(user);
  closers.push(() => redisOfAll.call('ACL', 'DELUSER', name));
  closers.push(() => patient.close());
  closers.push(() => patient.db().removeUser('parley'));
  const mail = await openMailServer();
  closers.push(() => mail.server.close());
  const mongodb = withUser(through(env['MONGODB_URL'] ?? '', mongoRelay), 'parley', SETTINGS.MONGODB_URL);
  mongodb.searchParams.set('authSource', mongodb.pathname.slice(1));
  return {
    ...env,
    LOG_LEVEL: 'trace',
    REPLY_TIMEOUT_MS: '2000',
    SEMANTIC: 'auto',
    METRICS_TOKEN: SETTINGS.METRICS_TOKEN,
    EMBEDDINGS_URL: embeddings.baseUrl,
    EMBEDDINGS_MODEL: 'letters',
    EMBEDDINGS_KEY: SETTINGS.EMBEDDINGS_KEY,
    ALERT_WEBHOOK_URL: `${alertHook.url}/${SETTINGS.ALERT_WEBHOOK_URL}`,
    ALERT_WEBHOOK_SECRET: SETTINGS.ALERT_WEBHOOK_SECRET,
    ALERT_SMTP_URL: `smtp://parley:${SETTINGS.ALERT_SMTP_URL}@127.0.0.1:${mail.port}`,
    ALERT_EMAIL_FROM: 'parley@example.com',
    ALERT_EMAIL_TO: 'operations@example.com',
    OTEL_EXPORTER_OTLP_ENDPOINT: withUser(collector.url, 'parley', SETTINGS.OTEL_EXPORTER_OTLP_ENDPOINT).href,
    OTEL_EXPORTER_OTLP_HEADERS: `x-api-key=${SETTINGS.OTEL_EXPORTER_OTLP_HEADERS}`,
    MONGODB_URL: mongodb.href,
    REDIS_URL: withUser(through(inject('redisUrl'), redisRelay), name, SETTINGS.REDIS_URL).href,
  };
};

beforeAll(async () => {
  const ENCRYPTION_KEY = Buffer.from(SETTINGS.ENCRYPTION_KEY).toString('base64');
  const env: Record<string, string> = { ...newEnvironment(), ENCRYPTION_KEY };
  // A process of the test fills the stores. It watches nothing, so that the alerts are those of the real ones.
  stack = await openStack({ env, replyWorkers: 0, deliveryWorkers: 0, timing: { alertEveryMs: 3_600_000 } });
  closers.push(stack.close);
  const loses = ({ name, collection }: { name: string; collection: string }) =>
    collection === losing && /^(insert|update|findAndModify)$/.test(name) ? () => undefined : null;
  redisRelay = await openRelay(inject('redisUrl'));
  mongoRelay = await openRelay(inject('mongodbUrl'), { loses });
  alertHook = await openReceiver();
  const repeat = ({ headers, body }: Receiver['received'][number]) => ({
    status: collector.received.length % 3 === 1 ? 400 : 200,
    body: `${JSON.stringify(headers)} ${body.toString()}`,
  });
  collector = await openCollector({ respond: repeat });
  embeddings = await openEmbeddingsService();
  closers.push(redisRelay.cut, mongoRelay.cut, alertHook.close, collector.close, embeddings.close);
  const planted = await plant(env);
  const kinds = ['api', 'reply', 'delivery', 'sources'] as const;
  const started = await Promise.all(kinds.map((kind) => start(kind, planted)));
  closers.push(() => Promise.all(started.map(({ kill }) => kill())));
  processes = Object.fromEntries(started.map((one) => [one.kind, one])) as typeof processes;
  url = processes.api.url;
  const subscriber = new Redis(inject('redisUrl'));
  subscriber.on('pmessage', (_pattern, channel: string, message: string) => {
    if (channel.includes(env['REDIS_PREFIX'] ?? '')) said.push(['redis:published', message]);
  });
  await subscriber.psubscribe('*');
  closers.push(() => subscriber.disconnect());
});
afterAll(async () => {
  for (const close of closers.toReversed()) await close();
  redisOfAll.disconnect();
});

type Sending = { method?: string; body?: unknown; headers?: Record<string, string>; bearer?: string };

/** Sends a request and keeps the whole answer, except a cookie that it sets for its owner. */
const send = async (path: string, { method, body, headers = {}, bearer }: Sending = {}): Promise<number> => {
  const answer = await fetch(`${url}${path}`, {
    method: method ?? (body === undefined ? 'GET' : 'POST'),
    headers: {
      ...(body !== undefined && { 'Content-Type': 'application/json' }),
      ...(bearer !== undefined && { Authorization: `Bearer ${bearer}` }),
      ...headers,
    },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const shown = [...answer.headers].filter(([name]) => name !== 'set-cookie');
  said.push([answer.ok ? 'answers' : 'refusals', `${JSON.stringify(shown)} ${await answer.text()}`]);
  return answer.status;
};

/** Everything that the service is told in confidence, and programs around it that repeat it. */
const confide = async () => {
  const live: Stack = { ...stack, url };
  const { assistants, endpoints, operators, sources, tokens } = stack.service;
  const receiver = await openReceiver({
    respond: ({ path, headers, body }) =>
      path.startsWith('/gone')
        ? { status: 410 }
        : {
            status: 500,
            headers: { 'X-Was': String(headers['x-factory-signature']) },
            body: `zqreceived ${body.toString()}`,
          },
  });
  const provider = await openProvider();
  provider.behave(replyWith('It is zqprovided.'));
  const website = await openWebsite({ '/': aPage('zqpage', `${aSentence('zqpage')} ${aSentence('the rest')}`) });
  closers.push(receiver.close, provider.close, website.close);

  const asked = await anAssistant(live, {
    input: { instructions: 'zqinstructions', holdingText: 'zqholding' },
    knowledge: [anEntry({ question: 'What is zqquestion?', answer: 'It is zqanswer.', variants: ['A zqvariant?'] })],
  });
  const { assistantId } = asked;
  await assistants.setChannel(assistantId, { connected: true, token: CHOSEN.verifyToken });
  const { secret: address } = await assistants.rotateSecretAddress(assistantId);
  await assistants.setWeb(assistantId, { enabled: true, origins: [SITE] });
  const { secret: identity } = await assistants.rotateWebIdentity(assistantId);
  const headers = [{ name: 'X-Own', value: CHOSEN.header }];
  const events = await endpoints.addEndpoint(assistantId, {
    headers,
    url: `${receiver.url}/zqpath0123456789/a@zqpath0123456789?to=a@zqquery`,
  });
  const gone = await endpoints.addEndpoint(assistantId, {
    url: `${receiver.url}/gone/zqpath0123456789?to=a@zqquery`,
    headers,
  });
  // Nobody asks the assistant of the site, so no reply is from its page.
  const { assistantId: sited } = await anAssistant(live);
  await sources.add(sited, { kind: 'page', url: `${website.url}/` });

  const provided = await anAssistant(live);
  const { baseUrl } = provider;
  const engine = { kind: 'openai', baseUrl, model: 'test-model', apiKey: CHOSEN.providerKey } as const;
  await assistants.setEngine(provided.assistantId, engine);

  const email = 'owner@example.com';
  const { operatorId } = await operators.createOperator({ email, role: 'owner', password: CHOSEN.password });
  const owner = openOperatorClient(url);
  await owner.signIn(email, CHOSEN.password);
  const given = { name: 'a program', scope: 'manage', assistantIds: null, createdBy: null } as const;
  const { secret: token } = await tokens.createToken(given);
  const { token: link } = await operators.makeLink(operatorId);
  const user = signUser(identity, 'zquser');
  const { token: visitor } = (await atSite(live, assistantId).start(user)).body;
  const cookies = [owner.cookie(), owner.device()].map((pair) => decodeURIComponent(pair?.split('=')[1] ?? ''));
  return {
    asked,
    provided,
    provider,
    owner,
    operatorId,
    visitor,
    token,
    address,
    inhabited: await anInhabited(live, { operatorId }),
    /** Each is refused beside what it is nearly. */
    secrets: [
      ...Object.values(SETTINGS),
      ...Object.values(CHOSEN),
      asked.apiKey,
      provided.apiKey,
      identity,
      events.secret,
      gone.secret,
      token,
      address,
      link,
      visitor,
      user.signature,
      ...cookies.flatMap((value) => value.replace(/^s:/, '').split('.')),
    ],
  };
};
type Confided = Awaited<ReturnType<typeof confide>>;

/** Ordinary calls, and calls that are refused. */
const live = async ({ asked, provided, owner, operatorId, visitor, token, address }: Confided): Promise<void> => {
  const { assistantId, apiKey: bearer } = asked;
  const session_id = `zqsession-${randomUUID()}`;
  const cookie = { Cookie: owner.cookie() ?? '', Origin: url, 'Sec-Fetch-Site': 'same-origin' };
  const chat = (message: string, more: Sending = {}) =>
    send('/api/v1/chat', { body: { session_id, message }, bearer, ...more });
  const channel = (given: string) =>
    send(`/api/v1/channels/webhook/${assistantId}`, {
      body: aTurn({ session_id: `zqchannel-${session_id}`, message: 'zqchannel' }),
      bearer: given,
    });
  const bySecret = (given: string, more: Sending = {}) =>
    send(`/api/v1/channels/webhook/${assistantId}/${given}`, {
      body: aTurn({ session_id: `zqchannel-${session_id}`, message: 'zqchannel' }),
      ...more,
    });
  const operate = (path: string, more: Sending) => send(`/operator/v1${path}`, { ...more, headers: cookie });
  const refused = [`http://parley:${CHOSEN.verifyToken}@127.0.0.1/`, `ftp://127.0.0.1/${CHOSEN.verifyToken}`];
  await Promise.all([
    chat('Is zqmessage zqquestion?', { headers: { 'Idempotency-Key': `zqidempotency-${session_id}` } }),
    chat('A zqvariant, to zqmessage@example.com?', { bearer: provided.apiKey }),
    chat('zqmessage', { bearer: `${bearer}x` }),
    chat('zqmessage', { headers: { Authorization: `Basic ${bearer}` } }),
    chat('zqmessage', { body: `{"session_id":"zqsession","message":"zqmessage" ${bearer}` }),
    chat('zqmessage', { body: { session_id: ['zqsession'], message: { zqmessage: 1 } } }),
    send(`/api/v1/chat?api_key=${bearer}`, { body: aTurn({ message: 'zqmessage' }) }),
    send(`/api/v1/${bearer}/zqmessage`),
    send(`/api/v1/conversations?cursor=zqmessage&updated_after=${bearer}`, { bearer }),
    channel(CHOSEN.verifyToken),
    channel(`${CHOSEN.verifyToken}x`),
    bySecret(address),
    bySecret(`${address}x`),
    bySecret(`${address}/`, { method: 'PUT' }),
    bySecret(`${address}/x?y=${address}`),
    send(`/api/v1/channels/webhook/${address}/${assistantId}`, { body: aTurn({ message: 'zqchannel' }) }),
    send(`/api/v1/web/${assistantId}/messages`, {
      body: { message: 'zqsite' },
      bearer: visitor,
      headers: { Origin: SITE },
    }),
    send(`/api/v1/web/${assistantId}/messages`, {
      body: { message: 'zqsite' },
      bearer: `${visitor}x`,
      headers: { Origin: SITE },
    }),
    send(`/api/v1/web/${assistantId}/sessions`, {
      body: { user: { ...signUser('x', 'zquser'), id: 'zquser' } },
      headers: { Origin: SITE },
    }),
    send('/metrics', { headers: { 'X-Forwarded-For': '203.0.113.9' }, bearer: `${SETTINGS.METRICS_TOKEN}x` }),
    send('/operator/v1/inbox', { bearer: `${token}x` }),
    operate('/session/password', { method: 'PUT', body: { current: `${CHOSEN.password}x`, next: CHOSEN.password } }),
    send('/operator/v1/session', {
      body: { email: 'owner@example.com', password: `${CHOSEN.password}x` },
      headers: { Origin: url },
    }),
    ...refused.flatMap((address) => [
      operate(`/assistants/${assistantId}/endpoints`, { body: { url: address } }),
      operate(`/assistants/${assistantId}/endpoints`, {
        body: { url: 'https://example.com/', headers: [{ name: 'Host', value: CHOSEN.header }] },
      }),
      operate(`/assistants/${assistantId}/sources`, { body: { kind: 'page', url: address } }),
      operate(`/assistants/${assistantId}/engine`, {
        method: 'PUT',
        body: { kind: 'openai', baseUrl: address, model: 'm', apiKey: `${CHOSEN.providerKey} ` },
      }),
    ]),
    operate(`/operators/${operatorId}`, { method: 'PATCH', body: { role: CHOSEN.password } }),
  ]);
};

/** One call of each kind that has a text and a secret. */
const callOnce = async ({ asked, provided, visitor, address }: Confided): Promise<void> => {
  const session_id = `zqsession-${randomUUID()}`;
  await Promise.all([
    send('/api/v1/chat', { body: { session_id, message: 'Is zqmessage zqquestion?' }, bearer: asked.apiKey }),
    send('/api/v1/chat', {
      body: { session_id, message: 'A zqvariant, to zqmessage@example.com?' },
      bearer: provided.apiKey,
    }),
    send(`/api/v1/channels/webhook/${asked.assistantId}`, {
      body: aTurn({ session_id: `zqchannel-${session_id}`, message: 'zqchannel' }),
      bearer: CHOSEN.verifyToken,
    }),
    send(`/api/v1/channels/webhook/${asked.assistantId}/${address}`, {
      body: aTurn({ session_id: `zqchannel-${session_id}`, message: 'zqchannel too' }),
    }),
    send(`/api/v1/web/${asked.assistantId}/messages`, {
      body: { message: 'zqsite' },
      bearer: visitor,
      headers: { Origin: SITE },
    }),
  ]);
};
/** Every day, all calls are sent once while all is well and once at the end, and a few under each fault. */
const again = sized({ everyday: callOnce, long: live });

/** What people add to a conversation. */
const handle = async ({ asked, owner }: Confided): Promise<string> => {
  const session_id = `zqsession-${randomUUID()}`;
  const { conversationId } = await eventually(async () => {
    const { status, body } = await asked.chat({ session_id, message: 'Is zqmessage zqquestion?' });
    expect(status).toBe(200);
    return body;
  });
  const path = `/conversations/${conversationId}`;
  const { status } = await asked.call(`/api/v1${path}/escalate`, { body: { reason: 'zqreason' } });
  expect(status).toBe(200);
  await asked.call(`/api/v1${path}/attributes`, { body: { plan: 'zqattribute' } });
  await asked.chat({ session_id, message: 'zqmessage is held' });
  await owner.post(`${path}/notes`, { content: 'zqnote' });
  await owner.post(`${path}/replies`, { content: 'zqwritten' });
  await owner.post(`${path}/tags`, { tag: 'zqtag', color: null });
  return conversationId;
};

/** Jobs that are none, as a person with a shell may add them. */
const poison = async (): Promise<void> => {
  const data = { turns: [{ key: 'zqpoison' }], conversations: 'zqpoison', sourceId: 'zqpoison' };
  for (const { queues } of Object.values(stack.service.queues)) await (queues[0] as Queue).add('poison', data);
};

const logs = (): string =>
  Object.values(processes)
    .flatMap(({ said: lines }) => lines)
    .join('\n');

const ready = () =>
  eventually(async () => {
    for (const one of Object.values(processes)) expect((await fetch(`${one.url}/readyz`)).status).toBe(200);
  });

/** Everything around the service fails, and says what it was told. */
const fail = async (confided: Confided, conversationId: string): Promise<void> => {
  confided.provider.behave(({ response }, { authorization, body }) => {
    response.writeHead(401, { 'WWW-Authenticate': String(authorization) });
    response.end(JSON.stringify({ error: { message: `Incorrect API key provided: ${authorization}`, body } }));
  });
  embeddings.behave(({ response }, { authorization, body }) => {
    response.writeHead(500).end(JSON.stringify({ error: `${authorization} ${JSON.stringify(body)}` }));
  });
  await again(confided);
  confided.provider.behave((wire, { authorization, body }) => {
    wire.open();
    wire.raw(`data: {"zqmessage" ${authorization} ${JSON.stringify(body)}\n\n`);
  });
  await again(confided);
  await poison();
  for (losing of ['conversations', 'audit', 'deliveries', 'messages']) {
    await again(confided);
    await confided.owner.call('DELETE', `/conversations/${conversationId}/tags/zqtag`);
    await confided.owner.post(`/conversations/${conversationId}/tags`, { tag: 'zqtag', color: null });
  }
  losing = null;
  const silence = async (relay: Relay): Promise<void> => {
    const during = again(confided);
    relay.freeze();
    await during;
    await again(confided);
    relay.thaw();
    await ready();
  };
  const outage = async (relay: Relay): Promise<void> => {
    await relay.cut();
    await again(confided);
    await relay.mend();
    await ready();
  };
  await silence(redisRelay);
  await outage(mongoRelay);
  if (isLong) {
    await silence(mongoRelay);
    await outage(redisRelay);
  }
  await live(confided);
};

const BOARD = ['turns', 'deliveries', 'knowledge', 'sources'].flatMap((name) =>
  ['latest', 'completed', 'failed'].map((status) => `/operator/queues/api/queues?activeQueue=${name}&status=${status}`),
);

/** Reads everything that can be read, and returns it with all that was said. */
const everything = async ({ owner, asked, inhabited, operatorId }: Confided): Promise<Said[]> => {
  const Cookie = owner.cookie() ?? '';
  const read = async (path: string, place: string): Promise<Said> => {
    const answer = await fetch(`${url}${path}`, { headers: { Cookie, Origin: url, 'Sec-Fetch-Site': 'same-origin' } });
    expect([path, answer.status]).toEqual([path, 200]);
    return [place, await answer.text()];
  };
  const held: Said[] = [...said, ...(await storedTexts(stack)), ['traces', collector.texts()]];
  for (const { json } of alertHook.received) held.push(['alerts', JSON.stringify(json)]);
  for (const one of Object.values(processes)) held.push(['metrics', await (await fetch(`${one.url}/metrics`)).text()]);
  for (const path of BOARD) held.push(await read(path, 'board'));
  const wordsOf = ({ id }: { id: string }): string =>
    id === 'findWork' ? `?search=${inhabited.ids.conversation}` : '';
  for (const one of OPERATIONS.filter(({ method, lasts }) => method === 'get' && !lasts))
    held.push(await read(`/operator/v1${pathIn(one, inhabited, operatorId)}${wordsOf(one)}`, 'operators'));
  held.push(await read(`/operator/v1/assistants/${asked.assistantId}/endpoints`, 'operators'));
  held.push(await read(`/operator/v1/assistants/${asked.assistantId}/export`, 'exports'));
  held.push(['logs', logs()]);
  return held;
};

const nowhere = (words: string[]) => Object.fromEntries(words.map((word) => [word, []]));

test('no secret is anywhere, and texts are only where the pages say', async () => {
  const confided = await confide();
  await live(confided);
  const conversationId = await handle(confided);
  await fail(confided, conversationId);
  await eventually(() => expect(alertHook.received.length).toBeGreaterThan(0));
  for (const line of ['"channel":"email"', 'an alert began', 'a source was read', 'a job failed', 'request failed'])
    await eventually(() => expect([line, logs().includes(line)]).toEqual([line, true]));

  const held = await everything(confided);
  const found = placesOf(Object.keys(TEXTS), held);
  for (const [word, places] of Object.entries(found)) {
    expect([word, places.length > 0]).toEqual([word, true]);
    expect([word, places.filter((place) => !TEXTS[word]?.includes(place))]).toEqual([word, []]);
  }
  expect(placesOf(confided.secrets, held)).toEqual(nowhere(confided.secrets));
});

test('a process that crashes with its secrets in hand tells none', async () => {
  const words = [...Object.values(SETTINGS), 'zqmessage'];
  for (const { child, said: lines } of Object.values(processes)) {
    const ended = once(child, 'close');
    child.kill('SIGUSR2');
    expect(await ended).toEqual([1, null]);
    const last = lines.filter((line) => line.includes('uncaught exception')).join('\n');
    expect(last).toContain('cannot go on with');
    expect(placesOf(words, [['logs', last]])).toEqual(nowhere(words));
  }
});
