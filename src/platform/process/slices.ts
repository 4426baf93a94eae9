import { AsyncLocalStorage } from 'node:async_hooks';
import { setImmediate as atNextTick } from 'node:timers';

/** Long work lets other work run after this time. */
const SLICE_MS = 4;

/** For whom the present code works: an assistant, or an operator. */
const holders = new AsyncLocalStorage<string>();
/** Work that is done for nobody in particular is the work of one holder. */
const NOBODY = '';
/** Work that is done for several holders at once. */
const SHARED = 'shared';

/** Runs work for a holder, such as an assistant. All its long computations together get the share of one. */
export const workFor = <Result>(holder: string, work: () => Result): Result => holders.run(holder, work);

/**
 * Runs work that is done for several holders at once, such as one read for many. All of them wait for it, so it has every
 * second slice, and none of them pays for it.
 */
export const workForAll = <Result>(work: () => Result): Result => holders.run(SHARED, work);

/** Who waits for a slice, by holder. The first holder has the next one. */
const waiting = new Map<string, (() => void)[]>();
let isServing = false;

/** At most this many ticks without a slice follow one another. Together they take about as long as a slice. */
const TICKS_LEFT_OUT = 40;
let hasConnected = false;
let ticksLeftOut = 0;

/**
 * Call this for each new connection. A tick accepts only one, and thousands may wait. So ticks with a new one are left to
 * what comes, up to a number.
 */
export const noteConnection = (): void => {
  hasConnected = true;
};

const serveLater = (): void => {
  atNextTick(() => {
    ticksLeftOut = hasConnected && ticksLeftOut < TICKS_LEFT_OUT ? ticksLeftOut + 1 : 0;
    hasConnected = false;
    if (ticksLeftOut > 0) serveLater();
    else serveNext();
  });
};

let wasShared = false;

/** The holder whose turn it is. */
const nextHolder = (): string | undefined => {
  const [first, second] = waiting.keys();
  if (!wasShared && waiting.has(SHARED)) return SHARED;
  return first === SHARED && second !== undefined ? second : first;
};

/** Serves those who wait, one after the other, until they have together worked as long as a slice in this tick. */
const serveNext = (since = performance.now()): void => {
  const holder = nextHolder();
  const queue = holder !== undefined && waiting.get(holder);
  isServing = Boolean(queue);
  if (holder === undefined || !queue) return;
  wasShared = holder === SHARED;
  const grant = queue.shift();
  waiting.delete(holder);
  if (queue.length > 0) waiting.set(holder, queue); // moves the holder to the end of the round
  grant?.();
  const goOn = (): void => {
    if (performance.now() - since < SLICE_MS) serveNext(since);
    else serveLater();
  };
  // A tick begins after all microtasks, so when the work has ended or waits for something else.
  queueMicrotask(() => process.nextTick(goOn));
};

/**
 * Waits for a slice. All callers of the process share one line, so that the loop serves requests after each slice,
 * however many long computations run. Holders take turns, so that a holder with many computations delays only itself.
 */
const nextSlice = (): Promise<void> =>
  new Promise((resolve) => {
    const holder = holders.getStore() ?? NOBODY;
    const queue = waiting.get(holder);
    if (queue) queue.push(resolve);
    else waiting.set(holder, [resolve]);
    if (isServing) return;
    isServing = true;
    serveLater();
  });

/** Divides a long computation: `if (slices.isOver()) await slices.next();` between two of its steps. */
export type Slices = {
  /** True if the current slice has taken its time. Cheap enough for every step. */
  isOver: () => boolean;
  next: () => Promise<void>;
};

/** Create one for each computation. The first slice begins now. */
export const createSlices = (ms = SLICE_MS): Slices => {
  let ends = performance.now() + ms;
  return {
    isOver: () => performance.now() >= ends,
    next: async () => {
      await nextSlice();
      ends = performance.now() + ms;
    },
  };
};

let tickBeganAt: number | null = null;

/** True if the current tick has already worked as long as a slice. */
const isTickOver = (): boolean => {
  const now = performance.now();
  if (tickBeganAt === null) {
    tickBeganAt = now;
    atNextTick(() => {
      tickBeganAt = null;
    });
  }
  return now - tickBeganAt >= SLICE_MS;
};

/**
 * What to wait for if the current tick has already worked as long as a slice, otherwise null. This is for short work that
 * many requests continue at once: the answer to one read may continue a hundred turns in one tick. Null must not be
 * awaited: then all of them would continue before the first has worked.
 */
export const restIfBusy = (): Promise<void> | null => (isTickOver() ? nextSlice() : null);

/**
 * The same for work that this holder begins: null if it may begin now. The work of a holder begins in the order in which
 * it came.
 */
export const restBefore = (holder: string): Promise<void> | null =>
  isTickOver() || waiting.has(holder) ? workFor(holder, nextSlice) : null;

/** Runs a computation that yields between its steps. If many are begun in one tick, only what fits into it runs there. */
export const inSlices = async <Result>(steps: Generator<unknown, Result>): Promise<Result> => {
  if (isTickOver()) await nextSlice();
  const slices = createSlices();
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
    if (slices.isOver()) await slices.next();
  }
};
