const TIMEOUT_MS = 120_000;
/** A check costs time that the service needs. So the pauses grow with the time that was waited: by a fifth of it. */
const PAUSE = { leastMs: 10, mostMs: 100, share: 0.2 };

/** Repeats `check` until it does not throw, and returns its value. After the timeout it throws the last error. */
export const eventually = async <Value>(
  check: () => Value | Promise<Value>,
  timeoutMs = TIMEOUT_MS,
): Promise<Value> => {
  const begun = performance.now();
  for (;;) {
    try {
      return await check();
    } catch (cause) {
      const waited = performance.now() - begun;
      if (waited > timeoutMs) throw cause;
      const pause = Math.min(PAUSE.mostMs, Math.max(PAUSE.leastMs, waited * PAUSE.share));
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
};
