import { parseArgs } from 'node:util';
import { requireNode } from '../src/platform/lifecycle.ts';
import { closeAll } from '../bench/support/services.ts';
import { soak } from './load/soak.ts';

/**
 * Loads the service steadily and checks that nothing grows.
 *
 *   npm run chaos -- soak                      20 minutes
 *   npm run chaos -- soak --minutes 5 --share 0.3
 */
requireNode();
/** Time for the set-up, the measurement before, and the comparison. */
const SPARE_MS = 600_000;

const readArguments = () => {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string', default: '20' },
      share: { type: 'string', default: '0.4' },
    },
  });
  const minutes = Number(values.minutes);
  const share = Number(values.share);
  if (!(minutes > 0 && minutes <= 120)) throw new Error('--minutes must be a number up to 120');
  if (!(share > 0 && share <= 0.9)) throw new Error('--share must be a share of the capacity, up to 0.9');
  return { minutes, share };
};

const end = async (why: string): Promise<void> => {
  console.error(why);
  await closeAll();
  process.exit(1);
};

const options = readArguments();
setTimeout(() => void end('the run did not end in time'), options.minutes * 60_000 + SPARE_MS).unref();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void end(signal));
let kept = false;
try {
  kept = await soak(options);
} finally {
  await closeAll();
}
process.exit(kept ? 0 : 1);
