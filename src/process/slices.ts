import { setImmediate } from 'node:timers/promises';
import { setImmediate as atNextTick } from 'node:timers';

/** Long work lets other work run after this time. */
const SLICE_MS = 4;

let last: Promise<void> = Promise.resolve();

/**
 * Waits for the next tick. All callers of the process share one line, so that the loop serves
 * requests between any two slices, however many long computations run.
 */
const nextSlice = (): Promise<void> => {
  last = last.then(() => setImmediate());
  return last;
};

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

/** Runs a computation that yields between its steps. */
export const inSlices = async <Result>(steps: Generator<unknown, Result>): Promise<Result> => {
  const slices = createSlices();
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
    if (slices.isOver()) await slices.next();
  }
};

let tickBeganAt: number | null = null;

/**
 * Waits if the current tick has already worked as long as a slice. This is for short work that many requests continue
 * at once: the answer to one read may continue a hundred turns in one tick.
 */
export const restIfBusy = async (): Promise<void> => {
  for (;;) {
    const now = performance.now();
    if (tickBeganAt === null) {
      tickBeganAt = now;
      atNextTick(() => {
        tickBeganAt = null;
      });
    }
    if (now - tickBeganAt < SLICE_MS) return;
    await nextSlice();
  }
};
