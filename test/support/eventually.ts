const TIMEOUT_MS = 60_000;
const EVERY_MS = 25;

/** Repeats `check` until it does not throw, and returns its value. After the timeout it throws the last error. */
export const eventually = async <Value>(
  check: () => Value | Promise<Value>,
  timeoutMs = TIMEOUT_MS,
): Promise<Value> => {
  const until = performance.now() + timeoutMs;
  for (;;) {
    try {
      return await check();
    } catch (cause) {
      if (performance.now() > until) throw cause;
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    }
  }
};
