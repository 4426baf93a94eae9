import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { brotliCompressSync } from 'node:zlib';
import { conversationModels, type StoredConversation, type StoredPage } from '../../src/conversations/conversation.ts';
import { searchModel, type ProjectedConversation } from '../../src/insights/conversation-search.ts';
import { openOperators } from '../../src/operators/store.ts';
import { conversationKeyOf, newPrefixedId } from '../../src/platform/process/ids.ts';
import { collectionOf } from '../../src/platform/mongo/mongo.ts';
import { conversationAfter, fill } from '../../test/kit/fill.ts';
import { median } from '../../test/kit/quantiles.ts';
import type { Figure, Part } from '../support/figures.ts';
import { type NeighbourOrder, openNeighbour, type Turns } from '../support/neighbour.ts';
import { type Child, type BenchAssistant, openParley, type Parley, QUESTIONS } from '../../test/kit/parley.ts';
import { openWebsite } from '../../test/kit/website.ts';
import { openAsker, openWire, requestText } from '../../test/kit/raw-http.ts';
import { openProvider, replyWith } from '../../test/kit/provider.ts';
import { atClose, memoryMbOf } from '../../test/kit/services.ts';

/** The neighbour sends this many turns a second, each in a session of its own. */
const TURNS_A_SECOND = 20;
/** Less than a fifth of what the model does here, so that the neighbour asks for less than its share. */
const VAGUE_TURNS_A_SECOND = 4;
const MEASURED_S = 10;
/** Alone and attacked take turns, because a pause of the machine of 100 ms decides a p99 of 200 turns. */
const ROUNDS = 3;
/** A wave begins when the one before has ended, and not sooner than this after the one before began. */
const WAVE_EVERY_MS = 1_000;
/** After an attack, the service gets this time to end what it began. */
const RECOVERED_WITHIN_S = 30;
const RECOVERED_P99_MS = 100;
const SLOW_PROVIDER_MS = 5_000;
const SAMPLE_EVERY_MS = 100;

type Scene = {
  parley: Parley;
  api: Child;
  neighbour: BenchAssistant;
  /** Sends the neighbour’s turns. */
  ask: ReturnType<typeof openNeighbour>;
  /** A key with the default limit, whose caller attacks. */
  anAttacker: () => Promise<BenchAssistant>;
  /** An operator token that may read one empty assistant. */
  aReadToken: (assistantId: string) => Promise<string>;
  /** An operator token that may find any work. */
  anOwnersToken: () => Promise<string>;
};

type Attack = {
  /** What the attacker does. The strength is the one at which a review once stopped the service. */
  name: string;
  /** Stores what the attack needs. The returned function makes one wave; waves are repeated for the whole time. */
  prepare: (scene: Scene) => Promise<(signal: AbortSignal) => Promise<unknown>>;
  /** The neighbour’s questions, if others than those with a sure answer matter. */
  questions?: NeighbourOrder['questions'];
  turnsASecond?: number;
};

/** The medians of the rounds' times, and the sums of their turns. */
const summaryOf = (rounds: Turns[]): Turns => ({
  p50: median(rounds.map(({ p50 }) => p50)),
  p99: median(rounds.map(({ p99 }) => p99)),
  refused: rounds.reduce((sum, { refused }) => sum + refused, 0),
  sent: rounds.reduce((sum, { sent }) => sum + sent, 0),
});

const askFor = (
  { api, neighbour, ask }: Scene,
  seconds: number,
  { questions = 'sure', turnsASecond = TURNS_A_SECOND }: Pick<Attack, 'questions' | 'turnsASecond'> = {},
): Promise<Turns> => ask({ port: api.port, apiKey: neighbour.apiKey, seconds, questions, turnsASecond });

const sureQuestion = QUESTIONS[0] as string;

/** Sends a request on a connection of its own. Of the answer it discards the beginning or the whole, or reads nothing. */
const send = (
  port: number,
  request: string | Buffer,
  signal: AbortSignal,
  { reads = 'beginning' }: { reads?: 'nothing' | 'beginning' | 'whole' } = {},
): Promise<void> =>
  new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(request));
    if (reads === 'nothing') socket.pause();
    else socket.resume();
    const stop = () => socket.destroy();
    signal.addEventListener('abort', stop, { once: true });
    if (reads === 'beginning') socket.once('data', () => setTimeout(stop, 50));
    socket.on('error', () => undefined);
    socket.once('close', () => {
      signal.removeEventListener('abort', stop);
      resolve();
    });
  });

const get = (path: string, apiKey: string): string =>
  requestText({ method: 'GET', path, apiKey }).replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n');

const times = <Result>(count: number, work: (nth: number) => Promise<Result>): Promise<Result[]> =>
  Promise.all(Array.from({ length: count }, (_, nth) => work(nth)));

/** A conversation with 1,000 messages of 8,000 emoji each. */
const storeLongHistory = async ({ parley }: Scene, owner: BenchAssistant): Promise<string> => {
  const { conversation, pages } = conversationAfter({ ...owner, sessionPrefix: randomUUID() }, 0, 500);
  const long = '😀'.repeat(8_000);
  for (const { entries } of pages)
    for (const { messages } of entries) for (const message of messages) message.content = long;
  const models = conversationModels(parley.service.mongo);
  await collectionOf<StoredConversation>(models.conversations).insertOne(conversation);
  for (const page of pages) await collectionOf<StoredPage>(models.messages).insertOne(page);
  return conversation.conversationId;
};

const anEntry = (nth: number, variants: number) => ({
  question: `Question ${nth}: ${randomUUID()} ${randomUUID()}?`,
  variants: Array.from({ length: variants }, (_, other) => `Wording ${other} of ${nth} ${randomUUID()} and more words`),
  answer: `Answer ${nth} ${'with a longer explanation '.repeat(20)}`,
  language: 'en',
  actions: [],
  tags: [],
});

/** Stores a knowledge of this size, 500 entries at a time, as an import does. */
const storeKnowledge = async ({ parley }: Scene, assistantId: string, entries: number, variants: number) => {
  for (let from = 0; from < entries; from += 500) {
    const count = Math.min(500, entries - from);
    const some = Array.from({ length: count }, (_, nth) => anEntry(from + nth, variants));
    await parley.service.assistants.addKnowledge(assistantId, some);
  }
};

const CHINESE = '酒店的早餐从几点开始供应，几点结束，素食的客人可以吃什么，孩子要付多少钱，狗可以带进餐厅吗';

/** Reads a site of one page, and waits until its passages have their vectors. */
const storePage = async ({ parley }: Scene, assistantId: string): Promise<void> => {
  const parts = Array.from(
    { length: 40 },
    (_, nth) => `<h2>第${nth}节</h2><p>${CHINESE}。${'房间里有水和茶。'.repeat(20)}</p>`,
  );
  const html = `<html lang="zh"><title>酒店</title><h1>酒店</h1>${parts.join('')}</html>`;
  const site = await openWebsite({ '/': html });
  const worker = await parley.start('sources worker');
  const { sourceId } = await parley.service.sources.add(assistantId, { kind: 'site', url: `${site.url}/` });
  for (const until = performance.now() + 120_000; ; await sleep(250)) {
    const { state, counts } = await parley.service.sources.get(assistantId, sourceId);
    if (state === 'ready' && counts.embedded === counts.passages) break;
    if (performance.now() > until) throw new Error(`the page was not read in time: ${JSON.stringify(counts)}`);
  }
  await worker.stop();
  await site.close();
};

const aChat = ({ apiKey }: BenchAssistant, message: string, session_id: string = randomUUID()): string => {
  const body = JSON.stringify({ session_id, message, language: 'en' });
  return requestText({ method: 'POST', path: '/api/v1/chat', apiKey, body });
};

const withHeader = (request: string, header: string): string => request.replace('\r\n', `\r\n${header}\r\n`);

/** Answered with 202 once the turn is accepted. */
const aChatForLater = (owner: BenchAssistant, message: string, session?: string): string =>
  withHeader(aChat(owner, message, session), 'Prefer: respond-async');

const FLOOD_CONNECTIONS = 200;

/** An assistant whose caller sends on many connections, on each the next request as soon as the last one is answered. */
const flood = (what: string, prepare: (scene: Scene, attacker: BenchAssistant) => Promise<() => string>): Attack => ({
  name: `${FLOOD_CONNECTIONS} connections with ${what}`,
  prepare: async (scene) => {
    const request = await prepare(scene, await scene.parley.addAssistant());
    return async () => {
      const asker = openAsker(scene.api.port);
      const until = performance.now() + WAVE_EVERY_MS;
      await asker.warmUp(FLOOD_CONNECTIONS);
      await times(FLOOD_CONNECTIONS, async () => {
        while (performance.now() < until) await asker.ask(request()).catch(() => undefined);
      });
      asker.close();
    };
  },
});

/** Sends the next request as soon as the last one is answered, on one connection of another address. */
const keepAsking = (port: number, request: string, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const ask = () => wire.send(request);
    const wire = openWire(port, { onOpen: ask, onAnswer: ask, onLost: resolve }, { localAddress: '127.0.0.9' });
    const stop = () => {
      wire.close();
      resolve();
    };
    signal.addEventListener('abort', stop, { once: true });
  });

const BACKLOG = 490;
const BACKLOG_SESSIONS = 30;
const BACKLOG_TURNS_A_WAVE = 100;

/** An assistant with ten endpoints, all paused, for which each of its conversations has hundreds of events. */
const aBacklog = async ({ parley, api }: Scene, baseUrl: string) => {
  const { assistants, endpoints, mongo } = parley.service;
  const owner = await parley.addAssistant();
  const { assistantId } = owner;
  const endpointIds = await times(10, async () => {
    const { endpoint } = await endpoints.addEndpoint(assistantId, { url: `${baseUrl}/events` });
    await endpoints.pauseEndpoint(endpoint.endpointId, { reason: 'gone', until: null });
    return endpoint.endpointId;
  });
  const sessions = Array.from({ length: BACKLOG_SESSIONS }, () => randomUUID());
  const asker = openAsker(api.port);
  for (const session of sessions) await asker.ask(aChat(owner, sureQuestion, session));
  asker.close();
  const [event, at] = ['message.received' as const, new Date()];
  const payload = { role: 'user' as const, turn_id: randomUUID(), language: 'en' };
  const stamp = { timestamp: 1, at, endpoints: endpointIds };
  const waiting = Array.from({ length: BACKLOG }, () => ({ event, payload, eventId: randomUUID(), ...stamp }));
  const conversations = collectionOf<StoredConversation>(conversationModels(mongo).conversations);
  await conversations.updateMany({ assistantId }, { $push: { outbox: { $each: waiting } } });
  const engine = { kind: 'openai', baseUrl, model: 'quick', apiKey: null } as const;
  await assistants.setEngine(assistantId, engine);
  return { owner, sessions };
};

const ATTACKS: Attack[] = [
  {
    name: '60 long histories that nobody reads',
    prepare: async (scene) => {
      const attacker = await scene.anAttacker();
      const id = await storeLongHistory(scene, attacker);
      const request = get(`/api/v1/conversations/${id}?limit=1000`, attacker.apiKey);
      return (signal) => times(60, () => send(scene.api.port, request, signal, { reads: 'nothing' }));
    },
  },
  {
    name: '40 turns asked for by the id 0',
    prepare: async (scene) => {
      const { assistantId } = await scene.parley.service.assistants.createAssistant({ name: 'Empty' });
      const token = await scene.aReadToken(assistantId);
      return (signal) => times(40, () => send(scene.api.port, get('/operator/v1/turns/0', token), signal));
    },
  },
  {
    name: '150 brotli bombs without signing in',
    prepare: async ({ api }) => {
      const bomb = brotliCompressSync(Buffer.alloc(1024 ** 3 * 1.5, ' '));
      const head = `POST /operator/v1/session HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Encoding: br\r\nContent-Length: ${bomb.length}\r\n\r\n`;
      const request = Buffer.concat([Buffer.from(head), bomb]);
      return (signal) => times(150, () => send(api.port, request, signal));
    },
  },
  {
    name: '40 searches of the inbox by one token',
    prepare: async (scene) => {
      const attacker = await scene.anAttacker();
      await storeSearchWords(scene, attacker);
      const token = await scene.aReadToken(attacker.assistantId);
      const request = get('/operator/v1/inbox?search=common%20words%20every', token);
      return (signal) => times(40, () => send(scene.api.port, request, signal));
    },
  },
  {
    name: '10 searches for work by ids, sessions and beginnings of ids',
    prepare: async ({ parley, api, anOwnersToken }) => {
      const { conversations } = conversationModels(parley.service.mongo);
      const found = await conversations.aggregate<StoredConversation>([{ $sample: { size: 100 } }]);
      const token = await anOwnersToken();
      let asked = 0;
      const search = (): string => {
        const { conversationId, sessionId, recent } = found[asked % found.length] as StoredConversation;
        asked += 1;
        const ids = [conversationId, recent[0]?.turnId ?? '', sessionId, conversationId.slice(0, 13), randomUUID()];
        return get(`/operator/v1/work?search=${ids[asked % ids.length]}`, token);
      };
      return (signal) => times(10, () => send(api.port, search(), signal, { reads: 'whole' }));
    },
  },
  {
    name: '5 searches of a large knowledge',
    prepare: async (scene) => {
      const attacker = await scene.anAttacker();
      await storeKnowledge(scene, attacker.assistantId, 9_000, 10);
      const token = await scene.aReadToken(attacker.assistantId);
      const request = get(`/operator/v1/assistants/${attacker.assistantId}/knowledge?search=wording`, token);
      return (signal) => times(5, () => send(scene.api.port, request, signal));
    },
  },
  {
    name: 'turns on knowledge of 3,500 entries with 50 variants',
    prepare: async (scene) => {
      const attacker = await scene.anAttacker();
      await storeKnowledge(scene, attacker.assistantId, 3_500, 50);
      return (signal) => times(1, () => send(scene.api.port, aChat(attacker, 'Question 7'), signal));
    },
  },
  {
    name: 'three keys that send 60 vague questions at once',
    questions: 'vague',
    turnsASecond: VAGUE_TURNS_A_SECOND,
    prepare: async (scene) => {
      const attackers = await times(3, scene.anAttacker);
      const long = (): string => `${randomUUID()} `.repeat(200).slice(0, 7_900);
      return (signal) =>
        times(180, (nth) => send(scene.api.port, aChat(attackers[nth % 3] as BenchAssistant, long()), signal));
    },
  },
  {
    name: '60 questions alike of 110 Chinese characters, on a document',
    prepare: async (scene) => {
      const attacker = await scene.parley.addAssistant();
      await storePage(scene, attacker.assistantId);
      const question = CHINESE.repeat(3).slice(0, 110);
      return (signal) => times(60, () => send(scene.api.port, aChat(attacker, question), signal));
    },
  },
  {
    name: 'a large knowledge that is edited again and again',
    prepare: async (scene) => {
      const attacker = await scene.parley.addAssistant();
      await storeKnowledge(scene, attacker.assistantId, 9_000, 10);
      let edits = 0;
      return async (signal) => {
        for (let edit = 0; edit < 6 && !signal.aborted; edit += 1) {
          edits += 1;
          await scene.parley.service.assistants.addKnowledge(attacker.assistantId, [anEntry(10_000 + edits, 3)]);
          await times(10, () => send(scene.api.port, aChat(attacker, 'Question 7'), signal));
        }
      };
    },
  },
  {
    name: '700 callers of one assistant',
    prepare: async (scene) => {
      const attacker = await scene.parley.addAssistant();
      const long = 'words and more words '.repeat(380);
      return (signal) => times(700, (nth) => send(scene.api.port, aChat(attacker, `${nth} ${long}`), signal));
    },
  },
  {
    name: '5 lists of a large knowledge',
    prepare: async (scene) => {
      const attacker = await scene.anAttacker();
      await storeKnowledge(scene, attacker.assistantId, 9_000, 10);
      const token = await scene.aReadToken(attacker.assistantId);
      const request = get(`/operator/v1/assistants/${attacker.assistantId}/knowledge`, token);
      return (signal) => times(5, () => send(scene.api.port, request, signal, { reads: 'whole' }));
    },
  },
  flood('turns for later, which wait for further messages', async ({ parley }, attacker) => {
    await parley.service.assistants.updateAssistant(attacker.assistantId, { quickMessageSeconds: 2 });
    return () => aChatForLater(attacker, sureQuestion);
  }),
  flood('turns for later, of a slow provider', async ({ parley }, attacker) => {
    const provider = await openProvider();
    provider.behave(async (...call) => {
      await sleep(SLOW_PROVIDER_MS);
      replyWith('Slowly.')(...call);
    });
    atClose(() => provider.close());
    const engine = { kind: 'openai', baseUrl: provider.baseUrl, model: 'slow', apiKey: null } as const;
    await parley.service.assistants.setEngine(attacker.assistantId, engine);
    return () => aChatForLater(attacker, sureQuestion);
  }),
  flood('long bodies that are refused', async (_scene, { apiKey }) => {
    const values = Array.from({ length: 5_000 }, (_, nth) => ({ [`a${nth}`]: 0 }));
    const request = requestText({ method: 'POST', path: '/api/v1/chat', apiKey, body: JSON.stringify({ values }) });
    return () => request;
  }),
  flood('wrong calls of a tool of MCP', async (_scene, { apiKey }) => {
    const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'ask', arguments: {} } };
    const text = requestText({ method: 'POST', path: '/mcp', apiKey, body: JSON.stringify(call) });
    const request = withHeader(text, 'Accept: application/json, text/event-stream');
    return () => request;
  }),
  flood('an old message and its key, again and again', async ({ api }, attacker) => {
    const session = randomUUID();
    const request = withHeader(aChat(attacker, 'hi', session), 'Idempotency-Key: old');
    const asker = openAsker(api.port);
    await asker.ask(request);
    for (let nth = 0; nth < 40; nth += 1) await asker.ask(aChat(attacker, `${nth} ${'😀'.repeat(7_900)}`, session));
    asker.close();
    return () => request;
  }),
  flood('one message, again and again', async (_scene, attacker) => {
    const request = aChat(attacker, sureQuestion, randomUUID());
    return () => request;
  }),
  {
    name: '5,000 connections of one address that ask who is signed in',
    prepare: async ({ api }) => {
      const request = requestText({ method: 'GET', path: '/operator/v1/session/current', apiKey: 'none' });
      return (signal) => times(5_000, () => keepAsking(api.port, request, signal));
    },
  },
  {
    name: '4 assistants with hundreds of waiting events in each conversation',
    prepare: async (scene) => {
      const provider = await openProvider();
      provider.behave(replyWith('Quickly.'));
      atClose(() => provider.close());
      const all = await times(4, () => aBacklog(scene, provider.baseUrl));
      return (signal) =>
        times(4 * BACKLOG_TURNS_A_WAVE, (nth) => {
          const { owner, sessions } = all[nth % 4] as (typeof all)[number];
          const session = sessions[(nth >> 2) % BACKLOG_SESSIONS] as string;
          return send(scene.api.port, aChatForLater(owner, `${sureQuestion} ${randomUUID()}`, session), signal);
        });
    },
  },
];

const storeSearchWords = async ({ parley }: Scene, { assistantId, sessionKey }: BenchAssistant): Promise<void> => {
  const rows = collectionOf<ProjectedConversation>(searchModel(parley.service.mongo));
  const now = Date.now();
  for (let start = 0; start < 100_000; start += 2_000) {
    const some = Array.from({ length: 2_000 }, (_, index): ProjectedConversation => {
      const nth = start + index;
      const session = `visitor-${nth}`;
      const key = conversationKeyOf({ sessionKey, sessionId: session, playground: false });
      const terms = ['common', 'words', `everywhere${nth % 50}`, `rare${nth}`];
      const updatedAt = new Date(now - nth * 60_000);
      return { _id: newPrefixedId(key), key, assistantId, updatedAt, seq: 10, resolvedAt: null, session, terms };
    });
    await rows.insertMany(some, { ordered: false, writeConcern: { w: 1, j: false } });
  }
};

/** The largest resident memory of each process while something runs, in MB. */
const watchMemory = (children: Child[]) => {
  const most = new Map(children.map(({ name }) => [name, 0]));
  const timer = setInterval(() => {
    for (const { name, pid } of children) most.set(name, Math.max(most.get(name) ?? 0, memoryMbOf(pid)));
  }, SAMPLE_EVERY_MS);
  return () => {
    clearInterval(timer);
    return Object.fromEntries([...most].map(([name, mb]) => [name, Math.round(mb)]));
  };
};

/** Waits until the neighbour is served as usual. */
const recover = async (scene: Scene): Promise<void> => {
  const until = performance.now() + RECOVERED_WITHIN_S * 1000;
  while (performance.now() < until) {
    const { p99, refused } = await askFor(scene, 1);
    if (refused === 0 && p99 < RECOVERED_P99_MS) return;
  }
};

/**
 * Measures how one caller's attack slows down the turns of a neighbour, with one process of each kind. Every attack
 * once stopped the service, or ended one of its processes. `NEIGHBOURS=1,3` runs only these attacks.
 */
export const neighbours: Part = async ({ scale }, say) => {
  const parley = await openParley('neighbours');
  const api = await parley.start('API');
  const children = [api, await parley.start('reply worker'), await parley.start('delivery worker')];
  const neighbour = await parley.addAssistant();
  const { operators, tokens } = await openOperators(parley.service.mongo);
  const { operatorId } = await operators.createOperator({
    email: 'bench@example.com',
    password: 'correct horse battery',
    role: 'owner',
  });
  const aToken = async (assistantIds: string[] | null): Promise<string> =>
    (await tokens.createToken({ name: 'bench', scope: 'read', assistantIds, createdBy: operatorId })).secret;
  const scene: Scene = {
    parley,
    api,
    neighbour,
    ask: openNeighbour(),
    anAttacker: async () => {
      const assistant = await parley.addAssistant();
      const key = { assistantId: assistant.assistantId, name: 'default', limitPerMinute: 60 };
      const { apiKey } = await parley.service.assistants.createApiKey(key);
      return { ...assistant, apiKey };
    },
    aReadToken: (assistantId) => aToken([assistantId]),
    anOwnersToken: () => aToken(null),
  };
  const conversations = Math.round(100_000 * scale);
  say(`neighbours: storing ${conversations} conversations`);
  await fill(parley, await parley.addAssistant(), { conversations, turnsEach: 3, deliveries: 0 });

  const chosen = process.env.NEIGHBOURS?.split(',').map(Number);
  const detail: Record<string, unknown> = {};
  const figures: Figure[] = [];
  const ratios: number[] = [];
  const most: number[] = [];
  let refusedAll = 0;
  await askFor(scene, 2); // warm-up
  for (const [index, { name, prepare, ...asking }] of ATTACKS.entries()) {
    if (chosen && !chosen.includes(index + 1)) continue;
    const wave = await prepare(scene);
    await recover(scene);
    const memory = watchMemory(children);
    const rounds: { alone: Turns; attacked: Turns }[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const alone = await askFor(scene, MEASURED_S, asking);
      const over = new AbortController();
      const attacking = (async () => {
        while (!over.signal.aborted)
          await Promise.all([
            wave(over.signal),
            sleep(WAVE_EVERY_MS, undefined, { signal: over.signal }).catch(() => undefined),
          ]);
      })();
      rounds.push({ alone, attacked: await askFor(scene, MEASURED_S, asking) });
      over.abort();
      await attacking;
      await recover(scene);
    }
    const mb = memory();
    const [alone, attacked] = [summaryOf(rounds.map((one) => one.alone)), summaryOf(rounds.map((one) => one.attacked))];
    const ratio = attacked.p99 / alone.p99;
    ratios.push(ratio);
    most.push(...Object.values(mb));
    refusedAll += attacked.refused;
    detail[name] = { alone, attacked, ratio, mb };
    say(
      `neighbours: ${index + 1}. ${name}: p99 ${alone.p99.toFixed(0)} → ${attacked.p99.toFixed(0)} ms (${ratio.toFixed(1)} ×), p50 ${alone.p50.toFixed(0)} → ${attacked.p50.toFixed(0)}, ${attacked.refused} of ${attacked.sent} refused, MB ${JSON.stringify(mb)}`,
    );
  }
  figures.push(
    {
      id: 'neighbours.ratio',
      what: 'a neighbour’s p99 under the worst attack',
      unit: '× alone',
      value: Math.max(...ratios),
    },
    { id: 'neighbours.refused', what: 'turns of neighbours refused or lost', unit: '', value: refusedAll },
    { id: 'neighbours.memory', what: 'the largest process under attack', unit: 'MB', value: Math.max(...most) },
  );
  return { figures, detail };
};
