const STALL_MS = 500;

/**
 * Loaded into a process with `--import`. After SIGUSR2, the event loop is busy for 500 ms. Unlike a stopped process, the
 * process keeps its CPU, and its kernel still accepts connections and data. It says when it goes on.
 */
process.on('SIGUSR2', () => {
  const until = performance.now() + STALL_MS;
  while (performance.now() < until);
  process.stdout.write('goes on\n');
});
