import { parseArgs } from 'node:util';
import { requireNode } from '../src/process/lifecycle.ts';
import { judgedRun } from './load/judged-run.ts';
import { soak } from './load/soak.ts';

/**
 * Loads the service steadily and checks that nothing grows.
 *
 *   npm run chaos -- soak                      20 minutes
 *   npm run chaos -- soak --minutes 5 --share 0.3
 */
requireNode();

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

const options = readArguments();
await judgedRun(options.minutes, () => soak(options));
