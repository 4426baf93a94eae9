const QUIET_MS = 3000;

const seconds = (since) => `${((Date.now() - since) / 1000).toFixed(1)} s`;

/**
 * Prints the set-up's progress on standard error, so that only a command's own output is on standard output. Each step
 * prints one line when it ends. A slow step also shows its progress.
 */
export const createReport = (stream = process.stderr) => {
  const done = [];
  const step = async (name, doing, work) => {
    const since = Date.now();
    let latest = '';
    const progress = setInterval(() => {
      stream.write(`  … ${name}: ${doing}, ${seconds(since)}${latest && ` (${latest.slice(0, 70)})`}\n`);
    }, QUIET_MS);
    try {
      const took = await work((line) => {
        latest = line;
      });
      done.push(name);
      stream.write(`set-up  ${name}: ${took}, ${seconds(since)}\n`);
    } finally {
      clearInterval(progress);
    }
  };
  return {
    step,
    note: (text) => stream.write(`set-up  ${text}\n`),
    didAnything: () => done.length > 0,
  };
};

/** An error for the person at the terminal, printed without a stack. */
export class SetupError extends Error {}
