const QUIET_MS = 3000;

const seconds = (since) => `${((Date.now() - since) / 1000).toFixed(1)} s`;

/**
 * What the set-up says, all on standard error, so that a command's JSON stays alone on standard output. Each step is one
 * line when it ends; one that takes long shows every few seconds that it lives, and what it is at.
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

/** A failure whose words are for the person at the keyboard: printed without a stack. */
export class SetupError extends Error {}
