import { requireNode } from '../src/platform/process/lifecycle.ts';
import { runCrowd } from './load/crowds.ts';
import { judgedRun } from './load/judged-run.ts';
import { readArguments } from './support/arguments.ts';
import { overload } from './load/overload.ts';

/**
 * Offers more load than the service can take, and judges what callers see.
 *
 *   npm run chaos -- load                      3 × capacity for 5 minutes
 *   npm run chaos -- load --minutes 1 --rate-factor 5
 *   npm run chaos -- load --crowd idle         5,000 idle connections
 *   npm run chaos -- load --crowd slow         500 senders of one byte at a time
 *   npm run chaos -- load --crowd sessions     10,000 sessions at once
 *   npm run chaos -- load --crowd largest      200 messages of the largest size in the costliest script
 */
requireNode();

const {
  crowd,
  minutes,
  'rate-factor': rateFactor,
} = readArguments({ minutes: [5, 0.01, 60, 'fraction'], 'rate-factor': [3, 1, 20, 'fraction'] }, { texts: ['crowd'] });
await judgedRun(minutes, () => (crowd === undefined ? overload({ minutes, rateFactor }) : runCrowd(crowd)));
