import { setTimeout as sleep } from 'node:timers/promises';
import { loadBase } from '@parley/understanding/evaluation';
import { areVectorsMade } from '../../src/assistants/knowledge/semantic-state.ts';
import { MIXED_BASES, type MixedTurn } from './mixed-turns.ts';
import { openParley, type Parley } from '../../test/kit/parley.ts';
import { openAsker, requestText } from '../../test/kit/raw-http.ts';
import { openSink } from '../../test/kit/sink.ts';

const VECTORS_WITHIN_MS = 60_000;
const SOCKETS = 1_500;

/** What the load is: so many turns in flight, or so many a second, whether or not they are answered. */
export type Load = { inFlight: number } | { perSecond: number };
export type Answered = { turn: MixedTurn; reply: string; ms: number; endedAt: number };

export type Assistants = Map<string, { assistantId: string; apiKey: string }>;

/** The evaluation's assistants, each with its knowledge, an endpoint and an API key without a limit that matters. */
export const addAssistants = async ({ service }: Parley, url: string): Promise<Assistants> => {
  const assistants: Assistants = new Map();
  for (const name of MIXED_BASES) {
    const { knowledge, languages } = loadBase(name);
    const { assistantId } = await service.assistants.createAssistant({
      name,
      languages,
      sessionLimitPerMinute: 1_000_000,
    });
    const entries = knowledge.map(({ entryId: _id, ...entry }) => entry);
    await service.assistants.addKnowledge(assistantId, entries);
    await service.endpoints.addEndpoint(assistantId, { url });
    const { apiKey } = await service.assistants.createApiKey({ assistantId, name: 'bench', limitPerMinute: 1_000_000 });
    assistants.set(name, { assistantId, apiKey });
  }
  return assistants;
};

export const untilVectorsAreMade = async ({ service }: Parley, assistants: Assistants): Promise<void> => {
  const since = performance.now();
  for (const { assistantId } of assistants.values()) {
    for (;;) {
      if (areVectorsMade(await service.assistants.getAssistant(assistantId))) break;
      if (performance.now() - since > VECTORS_WITHIN_MS)
        throw new Error('the vectors were not made: is there a model?');
      await sleep(50);
    }
  }
};

export const openCaller = (port: number, assistants: Assistants) => {
  const { ask, close } = openAsker(port);
  return {
    /** `from` is the time from which the answer is waited for. `prefix` makes the turn's session another one. */
    ask: async (turn: MixedTurn, prefix: string, from = performance.now()): Promise<Answered> => {
      const apiKey = assistants.get(turn.base)?.apiKey ?? '';
      const body = JSON.stringify({ session_id: `${prefix}-${turn.session}`, message: turn.message });
      const { ok, answer } = await ask(requestText({ method: 'POST', path: '/api/v1/chat', apiKey, body }));
      if (!ok) throw new Error(`a turn was refused: ${answer.slice(0, 200)}`);
      const endedAt = performance.now();
      const text = Buffer.from(answer.slice(answer.indexOf('\r\n\r\n') + 4), 'latin1').toString();
      const { reply } = JSON.parse(text) as { reply: string };
      return { turn, reply, ms: endedAt - from, endedAt };
    },
    close,
  };
};

export type Caller = ReturnType<typeof openCaller>;

/** Opens a service with one process of each kind, the assistants of the mixed load, and a caller for their turns. */
export const openMixed = async (name: string) => {
  const parley = await openParley(name);
  const sink = await openSink();
  const assistants = await addAssistants(parley, sink.url);
  const { port } = await parley.start('API');
  for (const worker of ['delivery worker', 'reply worker'] as const) await parley.start(worker);
  const caller = openCaller(port, assistants);
  return { parley, assistants, caller };
};

/** Keeps up the load for so many seconds, and resolves when all turns are answered. */
export const drive = async (caller: Caller, turns: MixedTurn[], load: Load, seconds: number): Promise<Answered[]> => {
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
    else {
      const one = caller.ask(next(), 'load', dueAt).then((answer) => answered.push(answer));
      // It fails the load at its end, and not the process before.
      one.catch(() => undefined);
      asked.push(one);
    }
    if (asked.length - answered.length > SOCKETS) throw new Error('too many turns wait for their answers');
  }
  await Promise.all(asked);
  return answered;
};
