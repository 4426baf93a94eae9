import { parseArgs } from 'node:util';
import { requireNode } from '../src/platform/lifecycle.ts';
import { closeAll } from '../bench/support/services.ts';
import { overload } from './load/overload.ts';

/**
 * Offers more load than the service can take, and judges what callers see.
 *
 *   npm run chaos -- load                      3 × capacity for 5 minutes
 *   npm run chaos -- load --minutes 1 --rate-factor 5
 */
requireNode();
/** Time for the set-up, the measurements before and after, and the comparison. */
const SPARE_MS = 600_000;

const readArguments = () => {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string', default: '5' },
      'rate-factor': { type: 'string', default: '3' },
    },
  });
  const minutes = Number(values.minutes);
  const rateFactor = Number(values['rate-factor']);
  if (!(minutes > 0 && minutes <= 60)) throw new Error('--minutes must be a number up to 60');
  if (!(rateFactor >= 1 && rateFactor <= 20)) throw new Error('--rate-factor must be a number from 1 to 20');
  return { minutes, rateFactor };
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
  kept = await overload(options);
} finally {
  await closeAll();
}
process.exit(kept ? 0 : 1);
