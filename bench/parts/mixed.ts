import { setTimeout as sleep } from 'node:timers/promises';
import { loadBase } from '@parley/understanding/evaluation';
import { collectionOf } from '../../src/mongo/mongo.ts';
import { conversationModels, type StoredConversation } from '../../src/conversations/conversation.ts';
import { modelProcessesOf } from '../../test/support/semantic.ts';
import { ascending, type Figure, figureOf, median, type Part, quantile } from '../support/figures.ts';
import { createMixedTurns, MIXED_BASES, type MixedTurn } from '../support/mixed-turns.ts';
import { openParley, type Parley } from '../support/parley.ts';
import { openWire, requestText, type Wire } from '../support/raw-http.ts';
import { type Child, cpuMsOf, openServices } from '../support/services.ts';
import { openSink } from '../support/sink.ts';

/** What the load is: so many turns in flight, or so many a second, whether or not they are answered. */
type Load = { inFlight: number } | { perSecond: number };
type Answered = { turn: MixedTurn; reply: string; ms: number; endedAt: number };
type Run = {
  perSecond: number;
  p50: number;
  p99: number;
  slowest: number;
  aboveASecond: number;
  /** The share of the turns whose reply says that the model gave no vector in time. */
  byWordsOnly: number;
  /** CPU of each process for a turn, in ms. */
  cpu: Record<string, number>;
  answered: Answered[];
};

const IN_FLIGHT = [1, 20, 100];
/** The number in flight at which the capacity is measured. */
const CARRIED = 20;
const WARM_UP_TURNS = 200;
const ROUNDS = 3;
const SECONDS = 5;
/** Load beyond the capacity, as a share of it. */
const BEYOND = 1.5;
/** How many turns of each load are asked again while nothing else runs. */
const COMPARED = 400;
const VECTORS_WITHIN_MS = 60_000;
const SOCKETS = 1_500;

type Assistants = Map<string, { assistantId: string; apiKey: string }>;

const addAssistants = async ({ service }: Parley, url: string): Promise<Assistants> => {
  const assistants: Assistants = new Map();
  for (const name of MIXED_BASES) {
    const { knowledge, languages } = loadBase(name);
    const { assistantId } = await service.assistants.createAssistant({ name, languages });
    const entries = knowledge.map(({ entryId: _id, ...entry }) => entry);
    await service.assistants.addKnowledge(assistantId, entries);
    await service.endpoints.addEndpoint(assistantId, { url });
    const { apiKey } = await service.assistants.createApiKey({ assistantId, name: 'bench', limitPerMinute: 1_000_000 });
    assistants.set(name, { assistantId, apiKey });
  }
  return assistants;
};

const untilVectorsAreMade = async ({ service }: Parley, assistants: Assistants): Promise<void> => {
  const since = performance.now();
  for (const { assistantId } of assistants.values()) {
    for (;;) {
      const { semantic, version } = await service.assistants.getAssistant(assistantId);
      if (semantic?.version === version) break;
      if (performance.now() - since > VECTORS_WITHIN_MS)
        throw new Error('the vectors were not made: is there a model?');
      await sleep(50);
    }
  }
};

/** Sends turns over sockets that stay open, each with one request in flight. */
const openCaller = (port: number, assistants: Assistants) => {
  type Waiting = { resolve: (answer: string) => void; reject: (cause: Error) => void };
  type Line = { wire: Wire; waiting: Waiting | null };
  const free: Line[] = [];
  const all: Line[] = [];

  const openLine = (): Promise<Line> =>
    new Promise((resolve, reject) => {
      const wire = openWire(port, {
        onOpen: () => resolve(line),
        onAnswer: (ok, answer) => {
          const { waiting } = line;
          line.waiting = null;
          free.push(line);
          if (ok) waiting?.resolve(answer);
          else waiting?.reject(new Error(`a turn was refused: ${answer.slice(0, 200)}`));
        },
        onLost: () => {
          line.waiting?.reject(new Error('a connection was lost'));
          reject(new Error('no connection'));
        },
      });
      const line: Line = { wire, waiting: null };
      all.push(line);
    });

  return {
    /** `from` is the time from which the answer is waited for. `prefix` makes the turn's session another one. */
    ask: async (turn: MixedTurn, prefix: string, from = performance.now()): Promise<Answered> => {
      const line = free.pop() ?? (await openLine());
      const apiKey = assistants.get(turn.base)?.apiKey ?? '';
      const body = JSON.stringify({ session_id: `${prefix}-${turn.session}`, message: turn.message });
      const answer = await new Promise<string>((resolve, reject) => {
        line.waiting = { resolve, reject };
        line.wire.send(requestText({ method: 'POST', path: '/api/v1/chat', apiKey, body }));
      });
      const endedAt = performance.now();
      const text = Buffer.from(answer.slice(answer.indexOf('\r\n\r\n') + 4), 'latin1').toString();
      const { reply } = JSON.parse(text) as { reply: string };
      return { turn, reply, ms: endedAt - from, endedAt };
    },
    close: () => {
      for (const { wire } of all) wire.close();
    },
  };
};

type Caller = ReturnType<typeof openCaller>;

const drive = async (caller: Caller, turns: MixedTurn[], load: Load, seconds: number): Promise<Answered[]> => {
  const answered: Answered[] = [];
  const startedAt = performance.now();
  const until = startedAt + seconds * 1000;
  let issued = 0;
  const next = (): MixedTurn => {
    const turn = turns[issued];
    if (!turn) throw new Error('there are too few turns for this load');
    issued += 1;
    return turn;
  };
  if ('inFlight' in load) {
    const lane = async (): Promise<void> => {
      while (performance.now() < until) answered.push(await caller.ask(next(), 'load'));
    };
    await Promise.all(Array.from({ length: load.inFlight }, lane));
    return answered;
  }
  const asked: Promise<unknown>[] = [];
  for (;;) {
    const dueAt = startedAt + (issued * 1000) / load.perSecond;
    if (dueAt >= until) break;
    if (dueAt > performance.now()) await sleep(1);
    else asked.push(caller.ask(next(), 'load', dueAt).then((one) => answered.push(one)));
    if (asked.length - answered.length > SOCKETS) throw new Error('too many turns wait for their answers');
  }
  await Promise.all(asked);
  return answered;
};

const idOf = (load: Load): string => ('inFlight' in load ? `${load.inFlight}` : `open-${load.perSecond}`);

/**
 * The mix that a real service gets: distinct questions in several languages to seven assistants, of which half need the
 * model. Afterwards, a part of the turns is asked again while nothing else runs. A reply that differs was found by words
 * alone under the load, although the model would have found another one.
 */
export const mixed: Part = async ({ rounds, seconds: asked }, say) => {
  const seconds = asked === 1.3 ? SECONDS : asked;
  const nextTurns = createMixedTurns();
  const services = await openServices('mixed');
  const parley = await openParley(services);
  const sink = await openSink();
  const assistants = await addAssistants(parley, sink.url);
  const [api, deliveryWorker] = [await parley.start('API'), await parley.start('delivery worker')];
  const caller = openCaller(api.port, assistants);
  const conversations = collectionOf<StoredConversation>(conversationModels(parley.service.mongo).conversations);

  let worker: Child = await parley.start('reply worker');
  await untilVectorsAreMade(parley, assistants);

  const cpuNow = (): Record<string, number> => ({
    API: cpuMsOf(api.pid),
    'reply worker': cpuMsOf(worker.pid),
    model: modelProcessesOf(worker.pid).reduce((sum, pid) => sum + cpuMsOf(pid), 0),
    'delivery worker': cpuMsOf(deliveryWorker.pid),
    mongod: cpuMsOf(services.pids.mongod),
    redis: cpuMsOf(services.pids.redis),
  });

  const countByWordsOnly = async (since: Date): Promise<number> => {
    const replies = await conversations
      .aggregate<{ count: number }>([
        { $match: { createdAt: { $gte: since } } },
        { $project: { byNumber: { $objectToArray: '$texts' } } },
        { $unwind: '$byNumber' },
        { $unwind: '$byNumber.v' },
        { $match: { 'byNumber.v.why.by': 'words only' } },
        { $count: 'count' },
      ])
      .toArray();
    return replies[0]?.count ?? 0;
  };

  const untilDelivered = async (): Promise<void> => {
    while ((await conversations.countDocuments({ 'outbox.0': { $exists: true } })) > 0) await sleep(25);
  };

  const runOnce = async (load: Load, turns: MixedTurn[]): Promise<Run> => {
    const since = new Date();
    const before = cpuNow();
    const startedAt = performance.now();
    const answered = await drive(caller, turns, load, seconds);
    const after = cpuNow();
    const tookS = (performance.now() - startedAt) / 1000;
    const times = ascending(answered.map(({ ms }) => ms));
    const cpu = Object.fromEntries(
      Object.entries(after).map(([name, ms]) => [name, (ms - (before[name] ?? 0)) / answered.length]),
    );
    const byWordsOnly = (await countByWordsOnly(since)) / answered.length;
    await untilDelivered();
    await sink.take();
    return {
      perSecond: answered.length / tookS,
      p50: quantile(times, 0.5),
      p99: quantile(times, 0.99),
      slowest: times.at(-1) ?? Number.NaN,
      aboveASecond: times.filter((ms) => ms > 1000).length,
      byWordsOnly,
      cpu,
      answered,
    };
  };

  const runs = new Map<string, Run[]>();
  const measure = async (load: Load, name = idOf(load)): Promise<Run> => {
    const most =
      'inFlight' in load ? ([0, 120, 500, 800][Math.ceil(Math.log10(load.inFlight + 1))] ?? 800) : load.perSecond;
    const turns = nextTurns(Math.ceil(most * seconds * 1.1) + 100);
    const run = await runOnce(load, turns);
    runs.set(name, [...(runs.get(name) ?? []), run]);
    const { perSecond, p50, p99, byWordsOnly } = run;
    say(
      `mixed, ${name}: ${perSecond.toFixed(0)} turns/s, p50 ${p50.toFixed(0)} ms, p99 ${p99.toFixed(0)} ms, by words for lack of the model ${(100 * byWordsOnly).toFixed(1)} %`,
    );
    return run;
  };

  for (const turn of nextTurns(WARM_UP_TURNS)) await caller.ask(turn, 'warm');
  for (let round = 0; round < Math.min(rounds, ROUNDS); round += 1) {
    for (const inFlight of IN_FLIGHT) await measure({ inFlight });
  }
  const rates = (name: string): number[] => (runs.get(name) ?? []).map(({ perSecond }) => perSecond);
  // With more in flight, words decide some turns alone. The rate is then higher, and the replies are worse.
  const capacity = median(rates(String(CARRIED)));
  for (let round = 0; round < Math.min(rounds, ROUNDS); round += 1) {
    await measure({ perSecond: Math.round(capacity / 2) }, 'half');
  }
  await measure({ perSecond: Math.round(capacity * BEYOND) }, 'beyond');

  // A new worker has no vector in its cache, so it makes each of them again.
  await worker.stop();
  worker = await parley.start('reply worker');
  for (let nth = 0; ; nth += 1) {
    // A turn that needs the model, until the model has opened.
    const [turn] = nextTurns(20).filter(({ kind }) => kind === 'meant');
    const since = new Date();
    if (turn) await caller.ask(turn, 'opening');
    if (turn && (await countByWordsOnly(since)) === 0) break;
    if (nth > 100) throw new Error('the model did not open again');
  }
  const differing = new Map<string, number>();
  for (const [name, all] of runs) {
    const answered = all.flatMap((run) => run.answered);
    const step = Math.max(1, Math.floor(answered.length / COMPARED));
    const sampled = answered.filter(({ turn }, at) => turn.kind !== 'followUp' && at % step === 0);
    let differ = 0;
    for (const { turn, reply } of sampled) {
      const again = await caller.ask(turn, `quiet-${name}`);
      if (again.reply !== reply) differ += 1;
    }
    differing.set(name, differ / sampled.length);
    say(`mixed, ${name}: ${((100 * differ) / sampled.length).toFixed(1)} % of ${sampled.length} replies differ`);
  }

  caller.close();
  sink.close();
  for (const child of [api, worker, deliveryWorker]) await child.stop();
  await parley.close();
  await services.close();

  const label = (name: string): string =>
    ({
      half: `mixed load at half of the capacity (${Math.round(capacity / 2)}/s)`,
      beyond: `mixed load at ${BEYOND} × the capacity`,
    })[name] ?? `mixed load, ${name} in flight`;
  const figures = [...runs].flatMap(([name, all]): Figure[] => {
    const one = (key: Exclude<keyof Run, 'cpu' | 'answered'>, what: string, unit: string, factor = 1): Figure =>
      figureOf(
        `mixed.${name}.${key}`,
        `${label(name)}${what}`,
        unit,
        all.map((run) => run[key] * factor),
      );
    return [
      one('perSecond', '', 'turns/s'),
      one('p50', ': p50', 'ms'),
      one('p99', ': p99', 'ms'),
      one('aboveASecond', ': turns above 1 s', ''),
      one('byWordsOnly', ': by words, because the model had no time', '%', 100),
      {
        id: `mixed.${name}.differ`,
        what: `${label(name)}: other replies than in a quiet run`,
        unit: '%',
        value: 100 * (differing.get(name) ?? Number.NaN),
      },
    ];
  });
  const costs = Object.fromEntries(
    [...runs].map(([name, all]) => [
      name,
      Object.fromEntries(
        Object.keys(all[0]?.cpu ?? {}).map((key) => [key, median(all.map(({ cpu }) => cpu[key] ?? 0))]),
      ),
    ]),
  );
  return { figures, detail: { costs } };
};
