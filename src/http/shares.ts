import type { Request, RequestHandler, Response } from 'express';
import { networkOf } from './http.ts';
import { withDeadline } from '../process/deadline.ts';
import { unavailable } from '../process/errors.ts';
import { createSlots, type Slot, type Slots } from '../process/slots.ts';

/**
 * Names who answers for the bytes of a request: the assistant of the key or channel, or the operator, that access has
 * found, and before that the network of the client.
 */
export const holdFor = (res: Response, holder: string): void => {
  res.locals.holder = holder;
};

export const holderOf = (req: Request, res: Response): string =>
  (res.locals.holder as string | undefined) ?? `network ${networkOf(req.ip ?? 'unknown')}`;

/**
 * Shares a number of bytes among holders. A holder may have at most as many as stay free, so one alone gets a half of
 * all bytes, two get a third each, and a new one always finds some.
 */
export const createByteShares = (total: number) => {
  const held = new Map<string, number>();
  let inUse = 0;

  const add = (holder: string, bytes: number): void => {
    inUse += bytes;
    const own = (held.get(holder) ?? 0) + bytes;
    if (own > 0) held.set(holder, own);
    else held.delete(holder);
  };

  return {
    get inUse(): number {
      return inUse;
    },

    has: (holder: string): boolean => held.has(holder),

    /** Takes bytes for a holder. False, and takes nothing, if they are more than its share. */
    take: (holder: string, bytes: number): boolean => {
      if ((held.get(holder) ?? 0) + bytes > total - inUse - bytes) return false;
      add(holder, bytes);
      return true;
    },

    release: (holder: string, bytes: number): void => add(holder, -bytes),
  };
};

/** How long a request may wait for its turn. Then it is refused with 503. */
const WAIT_MS = 10_000;

const acquireInTime = async (slots: Slots, holder: string, signal?: AbortSignal): Promise<Slot> => {
  let acquiring: Promise<Slot | null> | undefined;
  const acquire = (over: AbortSignal) => (acquiring = slots.acquire(holder, { signal: over }));
  const slot = await withDeadline(acquire, WAIT_MS, { late: unavailable, ...(signal && { signal }) }).catch(
    (cause: unknown) => {
      // The slot may have been given in the moment in which the wait ended.
      acquiring?.then((late) => late?.release()).catch(() => undefined);
      throw cause;
    },
  );
  if (!slot) throw unavailable();
  return slot;
};

/** A holder may have as many slots as stay free, like the bytes above. */
const shared = (total: number): Slots => createSlots(({ own, inUse }) => own + 1 < total - inUse);

/** How many large answers are read from MongoDB, built or written at once. Each holds some MiB until its caller has it. */
const largeAnswers = shared(16);
/** How many large bodies are read and worked on at once. Each holds some ten MiB until it is answered. */
const largeBodies = shared(4);

/**
 * Waits for a slot, and releases it once the response has been written or its caller has left. Requests of one holder
 * wait for each other; others go ahead of them.
 */
const takeSlot = async (slots: Slots, holder: string, res: Response): Promise<Slot> => {
  const slot = await acquireInTime(slots, holder);
  res.once('close', slot.release);
  if (!res.closed && !res.destroyed && !res.writableEnded) return slot;
  // The caller has left, or was refused, while the request waited. No query follows.
  slot.release();
  throw unavailable();
};

/** How many requests of one session or operator token a process works on at once. */
const OF_ONE_SESSION = 2;
const ofSessions = createSlots(({ own }) => own < OF_ONE_SESSION);

/**
 * Lets the requests of one session or token wait for each other, so that a visitor's request waits for a few of them,
 * also if a program sends a hundred at once. `sessionOf` names the session or token, whatever else the headers contain.
 */
export const limitEachSession =
  (sessionOf: (req: Request) => string | null): RequestHandler =>
  async (req, res, next) => {
    const session = sessionOf(req);
    if (session !== null) res.locals.sessionSlot = await takeSlot(ofSessions, session, res);
    next();
  };

/** Lets the next request of the session begin, because this one only waits, for its reader or for something new. */
export const freeSessionSlot = (res: Response): void => (res.locals.sessionSlot as Slot | undefined)?.release();

/** How long a caller without a place waits before a caller who does not read loses one. */
const PATIENCE_MS = 2_000;
type Place = { holder: string; req: Request; res: Response };
/** The large answers that have a place, the oldest first. */
const places = new Set<Place>();

/** Ends the connection of the answer that has waited longest for its reader, for a caller who has no place. */
const freeFor = (holder: string): void => {
  const all = [...places];
  if (all.some((one) => one.holder === holder)) return;
  all.find(({ res }) => res.writableEnded || res.writableNeedDrain)?.req.socket.destroy();
};

/**
 * Call this before loading any of a large answer, so that only a few are in memory. Clients that stop reading could
 * hold all places, so a holder without a place cuts off the answer that has waited longest for its client.
 */
export const takeRoomForAnswer = async (req: Request, res: Response): Promise<void> => {
  const place = { holder: holderOf(req, res), req, res };
  const timer = setInterval(() => freeFor(place.holder), PATIENCE_MS);
  try {
    await takeSlot(largeAnswers, place.holder, res);
  } finally {
    clearInterval(timer);
  }
  places.add(place);
  res.once('close', () => places.delete(place));
};

/** Limits how many large answers of one holder are built at once, because other requests run between their steps. */
const building = createSlots(({ own }) => own < 2);

/** Builds a large answer: reads it, encodes it and hands it to the connection. */
export const buildAnswer = async (req: Request, res: Response, build: () => Promise<void>): Promise<void> => {
  const slot = await acquireInTime(building, holderOf(req, res));
  try {
    await build();
  } finally {
    slot.release();
  }
};

/** Call this before a large body is read. */
export const takeRoomForBody = (req: Request, res: Response): Promise<Slot> =>
  takeSlot(largeBodies, holderOf(req, res), res);

/** How many costly reads a process makes at once. */
const COSTLY_AT_ONCE = 4;
/** How many costly reads may concern the same assistants, whoever reads. */
const COSTLY_PER_TENANT = 2;

/** Who reads, and what. `signal` aborts when the caller leaves. */
type Reader = { caller: string; tenant: string; signal: AbortSignal };
export type CostlyReads = <Value>(reader: Reader, read: () => Promise<Value>) => Promise<Value>;

/**
 * Takes turns between reads that may cost seconds: searches, long lists and comparisons. A caller has one at a time, so
 * that many requests of one program do not delay a person who searches once. Callers that share their assistants have
 * two together, so that the other half is left for others. A read that waits too long is refused.
 */
export const createCostlyReads = (): CostlyReads => {
  const ofCaller = createSlots(({ own }) => own < 1);
  const ofAll = createSlots(({ own, inUse }) => inUse < COSTLY_AT_ONCE && own < COSTLY_PER_TENANT);

  const inSlot = async <Value>(
    slots: Slots,
    holder: string,
    { signal, read }: { signal: AbortSignal; read: () => Promise<Value> },
  ): Promise<Value> => {
    const slot = await acquireInTime(slots, holder, signal);
    try {
      signal.throwIfAborted();
      return await read();
    } finally {
      slot.release();
    }
  };

  return ({ caller, tenant, signal }, read) =>
    inSlot(ofCaller, caller, { signal, read: () => inSlot(ofAll, tenant, { signal, read }) });
};
