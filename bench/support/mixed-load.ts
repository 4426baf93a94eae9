import { setTimeout as sleep } from 'node:timers/promises';
import { loadBase } from '@parley/understanding/evaluation';
import { areVectorsMade } from '../../src/assistants/semantic-state.ts';
import { MIXED_BASES, type MixedTurn } from './mixed-turns.ts';
import { openParley, type Parley } from '../../test/kit/parley.ts';
import { openWire, requestText, type Wire } from '../../test/kit/raw-http.ts';
import { openServices } from '../../test/kit/services.ts';
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

/** Sends turns over sockets that stay open, each with one request in flight. */
export const openCaller = (port: number, assistants: Assistants) => {
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
          // The API ends a connection that was not used for some time.
          const at = free.indexOf(line);
          if (at !== -1) free.splice(at, 1);
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

export type Caller = ReturnType<typeof openCaller>;

/** Opens a service with one process of each kind, the assistants of the mixed load, and a caller for their turns. */
export const openMixed = async (name: string) => {
  const services = await openServices(name);
  const parley = await openParley(services);
  const sink = await openSink();
  const assistants = await addAssistants(parley, sink.url);
  const children = [
    await parley.start('API'),
    await parley.start('delivery worker'),
    await parley.start('reply worker'),
  ];
  const caller = openCaller(children[0]?.port ?? 0, assistants);
  const close = async (): Promise<void> => {
    caller.close();
    sink.close();
    for (const child of children) await child.stop();
    await parley.close();
    await services.close();
  };
  return { parley, assistants, caller, close };
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
