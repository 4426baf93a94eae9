import type { Socket } from 'node:net';
import type { Request, RequestHandler, Response } from 'express';
import { createPauses, withDeadline } from '../process/deadline.ts';
import { ApiError, unavailable } from '../process/errors.ts';
import { createPacedSlots } from '../process/paced-slots.ts';
import { restBefore } from '../process/slices.ts';
import {
  type Acquiring,
  addTo,
  createSlots,
  type Occupancy,
  restAfter,
  restAsLong,
  type Slot,
  type Slots,
  whatRemains,
  withRests,
} from '../process/slots.ts';
import { holderOf, senderOf } from './shares.ts';

/** How long a request may wait for its turn. Then it is refused with 503. */
const WAIT_MS = 10_000;
/** The same for large bodies, uploads, exports, and the parts of an answer that has begun: some may each take seconds. */
export const BODY_WAIT_MS = 30_000;

/** `tenant`: whose turn it is. By default, the holder's. `signal`: aborts when the caller leaves. */
type Turn = { tenant?: string | undefined; signal?: AbortSignal | undefined; waitMs?: number };

/** Throws 503 if no slot was free in time. */
export const acquireInTime = async (
  slots: Acquiring,
  holder: string,
  { tenant = holder, signal, waitMs = WAIT_MS }: Turn = {},
): Promise<Slot> => {
  let acquiring: Promise<Slot | null> | undefined;
  const acquire = (over: AbortSignal) => (acquiring = slots.acquire(holder, { tenant, signal: over }));
  const slot = await withDeadline(acquire, waitMs, { late: unavailable, ...(signal && { signal }) }).catch(
    (cause: unknown) => {
      // The slot may have been given in the moment in which the wait ended.
      acquiring?.then((late) => late?.release()).catch(() => undefined);
      throw cause;
    },
  );
  if (!slot) throw unavailable();
  return slot;
};

/** Runs work in a slot. Throws 503 if none was free in time. */
export const inSlot = async <Value>(
  slots: Acquiring,
  holder: string,
  work: () => Promise<Value>,
  turn?: Turn,
): Promise<Value> => {
  const slot = await acquireInTime(slots, holder, turn);
  try {
    turn?.signal?.throwIfAborted();
    return await work();
  } finally {
    slot.release();
  }
};

/**
 * How many requests may wait for a slot: as many as a process has connections. A refusal is no end of a client who sends
 * again at once, so each waits its time before it.
 */
const WAITING_REQUESTS = { most: 10_000, total: 20_000 };
const requestSlots = (hasFreeSlot: (occupancy: Occupancy) => boolean): Slots =>
  createSlots(hasFreeSlot, WAITING_REQUESTS);

const shared = (total: number): Slots => requestSlots(whatRemains(total));

/**
 * How many large answers are read from MongoDB, built or written at once. Each holds some MiB until its caller has it.
 */
const largeAnswers = shared(16);
/**
 * How many long lists are written at once whose pages are read in turns. Each keeps some MiB of what it reads, and takes
 * long. Visitors need the places of large answers, so these are others, and a sender has as many as remain.
 */
const LISTS = 8;
const longLists = requestSlots((all) => whatRemains(LISTS)({ ...all, own: all.ofTenant }));
/**
 * How many large bodies are read and worked on at once. Each holds some ten MiB until it is answered. A holder whose work
 * takes longer by itself is slow, or hangs. All that are slow share half of these places.
 */
const LARGE_BODIES = 4;
const WORK = { slowMs: 2_000, hangsMs: 8_000 };
const pacedBodies = createPacedSlots({ ...WORK, total: LARGE_BODIES, shareOf: whatRemains });
const largeBodies = withRests(pacedBodies);
/** How many files are read at once. Each holds some MiB, because a part of it is stored before the next is read. */
const uploads = shared(16);
/** How many exports of assistants are read and written at once. */
const exports = shared(16);

/** Says what works on a request, so that it keeps its slots until then, even if its caller leaves. */
export const workOn = <Value>(res: Response, work: Promise<Value>): Promise<Value> => {
  res.locals.work = work;
  return work;
};

/** Calls back once the response has been written, or its caller has left and nothing works on it any more. */
const onceOver = (res: Response, then: () => void): void =>
  void res.once('close', () => void Promise.allSettled([res.locals.work]).then(then));

/**
 * Waits for a slot, and releases it once the request is over. A waiting request delays only requests of the same holder.
 */
const takeSlot = async (slots: Acquiring, holder: string, res: Response, turn?: Turn): Promise<Slot> => {
  const signal = turn?.signal ?? signalOf(res);
  const slot = await acquireInTime(slots, holder, { ...turn, signal }).catch((cause: unknown): never => {
    throw res.closed ? unavailable(cause) : cause;
  });
  onceOver(res, slot.release);
  if (!res.closed && !res.destroyed && !res.writableEnded) return slot;
  // The caller has left, or was refused, while the request waited. No query follows.
  slot.release();
  throw unavailable();
};

/** How many requests of one session or operator token a process works on at once. */
const OF_ONE_SESSION = 2;
const ofSessions = requestSlots(({ own }) => own < OF_ONE_SESSION);

/**
 * Works on at most `OF_ONE_SESSION` requests of one session or token at once. So a program that sends a hundred hardly
 * delays a visitor. `sessionOf` names the session or token, whatever else the headers contain.
 */
export const limitEachSession =
  (sessionOf: (req: Request) => string | null): RequestHandler =>
  async (req, res, next) => {
    const session = sessionOf(req);
    if (session !== null) res.locals.sessionSlot = await takeSlot(ofSessions, session, res);
    next();
  };

/**
 * How many requests of one person a process works on at once, however many sessions the person has begun. Each then
 * rests, so that a program in the name of a person takes only a part of the time. Requests that follow one another wait
 * for nothing.
 */
const OF_ONE_PERSON = 4;
const ofPersons = withRests(requestSlots(({ own }) => own < OF_ONE_PERSON));

/** The same for all sessions of one person. Call this when the session is known. */
export const limitEachPerson = async (operatorId: string, res: Response): Promise<void> => {
  res.locals.personSlot = await takeSlot(ofPersons, operatorId, res);
};

/**
 * How many requests of all people with the same assistants a process works on at once, and of all such tokens. A tenant
 * may have many of both. They take turns, and each request is followed by the same rest.
 */
const OF_ONE_TEAM = 6;
const ofTeams = withRests(requestSlots(({ own }) => own < OF_ONE_TEAM));

/** The same for a team, after what limits one person. */
export const limitEachTeam = async (team: string, sender: string, res: Response): Promise<void> => {
  res.locals.teamSlot = await takeSlot(ofTeams, team, res, { tenant: sender });
};

/** Lets the next request of the team begin, because this one takes turns elsewhere, where it may wait for seconds. */
export const freeTeamSlot = (res: Response): void => (res.locals.teamSlot as Slot | undefined)?.release();

/**
 * How many requests of the keys and the channel of one assistant a process works on at once, of messages until they are
 * at the gate. Each then rests for as long as it took: callers read and change far more than a person.
 */
const OF_ONE_ASSISTANT = 4;
/** Of this many messages, an assistant may have those that remain too: those that come together share their writes. */
const MESSAGES = 32;
const ofAssistants = {
  request: withRests(
    requestSlots(({ own }) => own < OF_ONE_ASSISTANT),
    restAsLong,
  ),
  message: withRests(
    requestSlots(({ own, inUse }) => own < OF_ONE_ASSISTANT || own < MESSAGES - inUse),
    restAsLong,
  ),
};

/**
 * The same for all callers of one assistant. Call this when the body has arrived, and before it is parsed. The work begins
 * in a slice of the assistant, because some requests wait for nothing else, and such a rest is over in the next tick.
 */
export const limitEachAssistant = async (
  assistantId: string,
  res: Response,
  { kind = 'request', signal }: { kind?: keyof typeof ofAssistants; signal?: AbortSignal | undefined } = {},
): Promise<void> => {
  res.locals.assistantSlot = await takeSlot(ofAssistants[kind], assistantId, res, { signal });
  const rest = restBefore(assistantId);
  if (rest) await rest;
  if (res.closed || res.destroyed) throw unavailable(); // the slot is given back, so nothing follows
};

/** Lets the next request of the caller begin, because this one only waits, for its reader or for something new. */
export const freeCallerSlots = (res: Response): void => {
  const { sessionSlot, personSlot, teamSlot, assistantSlot } = res.locals as Record<string, Slot | undefined>;
  for (const slot of [sessionSlot, personSlot, teamSlot, assistantSlot]) slot?.release();
};

/**
 * A caller who does not read or send loses its place once that and the wait of another have taken this long in all. It is
 * looked at while somebody waits.
 */
const PATIENCE_MS = 2_000;
const FREED_EVERY_MS = 100;
/** After this time, a body that arrives more slowly than `SLOW_BODY_BYTES_PER_MS` may lose its place. */
const SLOW_BODY_AFTER_MS = 5_000;
const SLOW_BODY_BYTES_PER_MS = 500;
/** After this time, an export may lose its place. */
const EXPORT_YIELDS_AFTER_MS = 10_000;

/**
 * How many bytes of its answers a connection has given to the operating system. Node's own count reads all texts that
 * wait. Node has no public names for this. Checked with Node 24.
 */
export const takenOf = (socket: Socket): number => {
  const { _bytesDispatched: given = 0, _handle: handle } = socket as unknown as {
    _bytesDispatched?: number;
    _handle?: { writeQueueSize?: number } | null;
  };
  return given - (handle?.writeQueueSize ?? 0);
};

/**
 * `readBefore`: what had been read from the connection when the request got its place. `sent`: what its client had taken
 * when somebody looked, and since when it takes nothing. `isEnded`: its request was ended for another one.
 */
type Place = {
  holder: string;
  sender: string;
  req: Request;
  res: Response;
  since: number;
  readBefore: number;
  sent: { bytes: number; at: number };
  isEnded: boolean;
};

const takesNothingSince = (place: Place, now: number): number => {
  const bytes = takenOf(place.req.socket);
  if (bytes !== place.sent.bytes) place.sent = { bytes, at: now };
  return place.sent.at;
};

const cutOff = ({ req }: Place): void => void req.socket.destroy();

type PlaceRules = {
  slots: Acquiring;
  waitMs: number;
  /** The wait of a holder that has a place already. By default the same. */
  againMs?: number;
  isUnused: (place: Place) => boolean;
  /** True if a sender has one share for all its holders. By default, each holder has its own. */
  isOfSender?: boolean;
  /** Ends a request. By default its connection is closed. */
  end?: (place: Place) => void;
};

/**
 * Gives places to requests. Clients could hold all places without using them. So a holder who waits for its first place
 * ends the oldest request that does not use its place.
 */
const createPlaces = ({ slots, waitMs, againMs = waitMs, isUnused, isOfSender = false, end = cutOff }: PlaceRules) => {
  /** The oldest first. */
  const places = new Set<Place>();
  /** Who waits, and since when, or since the last request was ended for it. */
  const waiting = new Set<{ holder: string; sender: string; since: number }>();

  const hasPlace = (holder: string): boolean => [...places].some((one) => one.holder === holder);

  /** Ends one request for each waiting one, and another one only if that gives no place within the same time. */
  const freePlaces = (): void => {
    const now = performance.now();
    const all = [...places].map((place) => ({ place, idleMs: now - takesNothingSince(place, now) }));
    const holders = new Set(all.map(({ place }) => place.holder));
    const senders = new Set(all.map(({ place }) => place.sender));
    const unused = all.filter(({ place }) => isUnused(place));
    for (const one of waiting) {
      if (holders.has(one.holder)) continue;
      const waitedMs = now - one.since;
      // While its sender has a place, it waits for more of the sender's share, and ends nothing of others.
      const isOwnOnly = isOfSender && senders.has(one.sender);
      const found = unused.find(
        ({ place, idleMs }) =>
          !place.isEnded && (!isOwnOnly || place.sender === one.sender) && idleMs + waitedMs > PATIENCE_MS,
      );
      if (!found) continue;
      found.place.isEnded = true;
      end(found.place);
      one.since = now;
    }
  };
  let timer: NodeJS.Timeout | undefined;

  /** Looks for places that are not used while somebody waits, once for all who do. */
  const whileWaiting = async (who: { holder: string; sender: string }, slot: Promise<Slot>): Promise<Slot> => {
    const one = { ...who, since: performance.now() };
    waiting.add(one);
    timer ??= setInterval(freePlaces, FREED_EVERY_MS);
    try {
      return await slot;
    } finally {
      waiting.delete(one);
      if (waiting.size === 0) {
        clearInterval(timer);
        timer = undefined;
      }
    }
  };

  return async (req: Request, res: Response): Promise<void> => {
    const who = { holder: holderOf(req, res), sender: senderOf(req, res) };
    const turn = { tenant: who.sender, waitMs: hasPlace(who.holder) ? againMs : waitMs };
    const slot = await whileWaiting(who, takeSlot(slots, who.holder, res, turn));
    const since = performance.now();
    const sent = { bytes: -1, at: since };
    const place = { ...who, req, res, since, readBefore: req.socket.bytesRead, sent, isEnded: false };
    const leave = (): void => {
      places.delete(place);
      slot.release();
    };
    places.add(place);
    onceOver(res, leave);
  };
};

/** Call this before loading any of a large answer, so that only a few are in memory. A client must read its answer. */
export const takeRoomForAnswer = createPlaces({
  slots: largeAnswers,
  waitMs: WAIT_MS,
  isUnused: ({ res }) => res.writableEnded || res.writableNeedDrain,
});

/** Call this before a long list whose pages are read in turns. A client must read its answer. */
export const takeRoomForList = createPlaces({
  slots: longLists,
  waitMs: WAIT_MS,
  isOfSender: true,
  isUnused: ({ res }) => res.writableEnded || res.writableNeedDrain,
});

/** True for a body that is sent slowly, or an answer that only waits for its reader. */
const isSlow = ({ req, res, since, readBefore }: Place): boolean => {
  if (res.writableEnded) return !res.closed;
  const ms = performance.now() - since;
  return !req.complete && ms > SLOW_BODY_AFTER_MS && req.socket.bytesRead - readBefore < SLOW_BODY_BYTES_PER_MS * ms;
};

/** Call this before a large body is read. A client must send its body, and read its answer. */
export const takeRoomForBody = createPlaces({ slots: largeBodies, waitMs: BODY_WAIT_MS, isUnused: isSlow });

/**
 * Works on what a large body asks for. What the work waits for does not belong here, because others may cause it; its
 * wait for the place of a draft does, because it keeps the place of its body meanwhile.
 */
export const workOnBody = <Value>(req: Request, res: Response, work: Promise<Value>): Promise<Value> =>
  pacedBodies.watch(holderOf(req, res), work);

/** Call this before a file is read. A client must send it. */
export const takeRoomForUpload = createPlaces({ slots: uploads, waitMs: BODY_WAIT_MS, isUnused: isSlow });

/** True if an export is to end after its present line, because somebody else waits. It can be continued. */
export const endsEarly = (res: Response): boolean => res.locals.endsEarly === true;

/** Call this before an export begins. */
export const takeRoomForExport = createPlaces({
  slots: exports,
  waitMs: BODY_WAIT_MS,
  againMs: 0,
  isUnused: ({ res, since }) => !endsEarly(res) && performance.now() - since > EXPORT_YIELDS_AFTER_MS,
  end: ({ res }) => {
    res.locals.endsEarly = true;
  },
});

/**
 * Large answers are built in steps, and other requests run in between. So one holder builds only two at a time, and one of
 * the two places rests as long as an answer took. So one after the other never waits.
 */
const building = withRests(
  requestSlots(({ own }) => own < 2),
  restAsLong,
);

/** Builds a large answer: reads it, encodes it and hands it to the connection. */
export const buildAnswer = <Built>(req: Request, res: Response, build: () => Promise<Built>): Promise<Built> =>
  inSlot(building, holderOf(req, res), build);

/** Aborts when the caller has left. */
export const signalOf = (res: Response): AbortSignal => {
  const known = res.locals.left as AbortController | undefined;
  if (known) return known.signal;
  const left = new AbortController();
  res.locals.left = left;
  if (res.destroyed) left.abort();
  res.once('close', () => left.abort());
  return left.signal;
};

/** Throws 503 if the turn did not come in time, or the caller has left. */
type RestedWork<Result> = <Value extends Result>(
  holder: string,
  work: () => Promise<Value>,
  signal?: AbortSignal,
) => Promise<Value>;

/**
 * For work whose cost depends on what its holder has stored or sends. One holder does one piece of it at a time and rests
 * after each, so it takes only a part of the time, however many callers it has. `restOf`: the rest after work that took
 * `ms` and gave `value`, in milliseconds. `value` is undefined if the work failed.
 */
export const createRestedWork = <Result = unknown>(
  restOf: (ms: number, value: Result | undefined) => number = (ms) => restAfter(ms),
): RestedWork<Result> => {
  const ofHolder = requestSlots(({ own }) => own === 0);
  return async (holder, work, signal) => {
    const slot = await acquireInTime(ofHolder, holder, { signal }).catch((): never => {
      throw unavailable();
    });
    const since = performance.now();
    let value: Result | undefined;
    try {
      const done = await work();
      value = done;
      return done;
    } finally {
      setTimeout(slot.release, restOf(performance.now() - since, value)).unref();
    }
  };
};

const LOOK_EVERY_MS = 200;
/** All long polls together look at most this often. Their holders share it equally. */
const LOOKS_A_SECOND = 1_000;
/** How many long polls of one assistant’s keys may wait in this process. */
const POLLS_MAX = 200;

type Poll = { waitMs: number; everyMs?: number; isThere: () => Promise<boolean> };

/**
 * Waits until `isThere`, the time is up, or the caller has disconnected. It begins with a pause: the caller has looked.
 * A poll above the limit of its holder is refused, because each one looks again and again.
 */
export type LongPoll = (req: Request, res: Response, poll: Poll) => Promise<void>;

/** `draining` ends long polls when the process drains. */
export const createLongPolls = (draining: AbortSignal): LongPoll => {
  /** The long polls that wait, by their holder. */
  const polls = new Map<string, number>();
  const { pause, endAll } = createPauses();
  draining.addEventListener('abort', endAll, { once: true });

  return async (req, res, { waitMs, everyMs = LOOK_EVERY_MS, isThere }) => {
    const until = performance.now() + waitMs;
    const isOver = (): boolean => performance.now() >= until || res.destroyed || res.writableEnded || draining.aborted;
    const holder = holderOf(req, res);
    if ((polls.get(holder) ?? 0) >= POLLS_MAX) throw new ApiError('rate_limited', { headers: { 'Retry-After': '1' } });
    addTo(polls, holder, 1);
    freeCallerSlots(res);
    try {
      while (!isOver()) {
        const ofHolder = LOOKS_A_SECOND / polls.size;
        const ms = Math.max(everyMs, (1_000 * (polls.get(holder) ?? 0)) / ofHolder);
        await pause(Math.min(ms, until - performance.now()));
        if (isOver() || (await isThere())) return;
      }
    } finally {
      addTo(polls, holder, -1);
    }
  };
};

/** How many costly reads a process makes at once. */
const COSTLY_AT_ONCE = 4;
/**
 * How many costly reads one holder may have at once. A holder is all callers with the same assistants, or one maker's
 * tokens.
 */
const COSTLY_PER_HOLDER = 2;
/** After a read, its place among those of the holder rests as long as the read took. So one after the other never waits. */
const COSTLY_REST_MOST_MS = 5_000;

/** Who reads, what, and whose turn it is. `signal` aborts when the caller leaves. */
type Reader = { caller: string; holder: string; tenant: string; signal: AbortSignal };
/** Waits for something else, then reads. */
export type Within = <Value>(read: () => Promise<Value>) => Promise<Value>;
export type CostlyReads = <Value>(
  reader: Reader,
  read: () => Promise<Value>,
  within?: Within,
  waitMs?: number,
) => Promise<Value>;

/**
 * Takes turns between reads that may cost seconds: searches, long lists and comparisons. A caller has one at a time, so
 * that many requests of one program do not delay a person who searches once. A holder has at most `COSTLY_PER_HOLDER`
 * of the slots, so that the others are left for others, and half of the time one of them rests. The tenant that had slots
 * for the least time lately is next. A read that waits too long is refused. `within`: a read that waits for something
 * else does so once it is its holder's turn, and without one of the slots of all.
 */
export const createCostlyReads = (): CostlyReads => {
  const ofCaller = requestSlots(({ own }) => own < 1);
  const ofHolder = requestSlots(({ own }) => own < COSTLY_PER_HOLDER);
  const ofAll = createSlots(({ inUse }) => inUse < COSTLY_AT_ONCE, { ...WAITING_REQUESTS, leastTimeFirst: true });

  return ({ caller, holder, tenant, signal }, read, within = (last) => last(), waitMs = WAIT_MS) => {
    const turn = { tenant, signal, waitMs };
    const ofOne = async () => {
      const slot = await acquireInTime(ofHolder, holder, turn);
      let tookMs = 0;
      const measured = async () => {
        const since = performance.now();
        return read().finally(() => (tookMs = performance.now() - since));
      };
      try {
        return await within(() => inSlot(ofAll, holder, measured, turn));
      } finally {
        setTimeout(slot.release, restAsLong(tookMs, COSTLY_REST_MOST_MS)).unref();
      }
    };
    return inSlot(ofCaller, caller, ofOne, { signal, waitMs });
  };
};
