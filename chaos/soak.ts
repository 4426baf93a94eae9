import { requireNode } from '../src/platform/process/lifecycle.ts';
import { judgedRun } from './load/judged-run.ts';
import { readArguments } from './support/arguments.ts';
import { soak } from './load/soak.ts';

/**
 * Loads the service steadily and checks that nothing grows.
 *
 *   npm run chaos -- soak                      20 minutes
 *   npm run chaos -- soak --minutes 5 --share 0.3
 */
requireNode();

const options = readArguments({ minutes: [20, 0.01, 120, 'fraction'], share: [0.4, 0.01, 0.9, 'fraction'] });
await judgedRun(options.minutes, () => soak(options));
