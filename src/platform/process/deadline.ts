type Options = {
  /** Makes the error that is thrown after the deadline. */
  late?: () => Error;
  /** Aborting this signal ends the wait before the deadline, with the signal's reason. */
  signal?: AbortSignal;
};

/**
 * Resolves to the result of `work`, or rejects after `ms`. If `work` is a function, it gets a signal that aborts at the
 * deadline. The wait also ends by itself at the deadline, because a signal alone does not end a request that is still
 * connecting. Work that ignores the signal continues, and its result is dropped.
 */
export const withDeadline = async <Value>(
  work: Promise<Value> | ((signal: AbortSignal) => Promise<Value>),
  ms: number,
  { late = () => new Error(`no answer within ${ms} ms`), signal }: Options = {},
): Promise<Value> => {
  const over = new AbortController();
  const ended = Promise.withResolvers<never>();
  const end = (reason: unknown): void => {
    over.abort(reason);
    ended.reject(reason);
  };
  const timer = setTimeout(() => end(late()), ms);
  const stop = (): void => end(signal?.reason);
  signal?.addEventListener('abort', stop, { once: true });
  if (signal?.aborted) stop();
  try {
    return await Promise.race([typeof work === 'function' ? work(over.signal) : work, ended.promise]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', stop);
  }
};

/** A signal that aborts with `reason`, `ms` after another signal. */
export const abortAfter = (signal: AbortSignal, ms: number, reason: unknown): AbortSignal => {
  const later = new AbortController();
  signal.addEventListener('abort', () => void setTimeout(() => later.abort(reason), ms).unref(), { once: true });
  return later.signal;
};

/** Waits of which thousands may go on at once. */
type Pauses = {
  /** How many wait. */
  readonly size: number;
  pause: (ms: number) => Promise<void>;
  /** Ends all waits that go on. */
  endAll: () => void;
};

/** A listener at one signal for each would cost more: to add one, Node looks at all of them. */
export const createPauses = (): Pauses => {
  const ends = new Set<() => void>();
  return {
    get size(): number {
      return ends.size;
    },
    pause: (ms) =>
      new Promise((resolve) => {
        const end = (): void => {
          clearTimeout(timer);
          ends.delete(end);
          resolve();
        };
        const timer = setTimeout(end, ms);
        ends.add(end);
      }),
    endAll: () => {
      for (const end of ends) end();
    },
  };
};
