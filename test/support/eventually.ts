const TIMEOUT_MS = 15_000;
const EVERY_MS = 25;

/** Tries again until `check` no longer throws, then gives its value; after the time is up, its last error. */
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
