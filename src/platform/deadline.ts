type Options = {
  /** The error after the deadline. */
  late?: () => Error;
  /** Ends the wait before the deadline, with the signal's reason. */
  signal?: AbortSignal;
};

/**
 * Resolves to the result of `work`, or rejects after `ms`. A function gets a signal that aborts at the deadline. The
 * race is needed because a signal alone does not end a request that is still connecting. Work that ignores the signal
 * continues, and its result is dropped.
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
