type Options = {
  /** The rejection once the time is up. */
  late?: () => Error;
  /** Ends it before the deadline, with the signal's own reason. */
  signal?: AbortSignal;
};

/**
 * What `work` gives, or a rejection once `ms` are over. It is raced, since a signal alone does not end a request that is
 * still connecting: work that takes the signal is aborted by it, and other work goes on unheard.
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
