import { parseArgs } from 'node:util';
import { requireNode } from '../src/process/lifecycle.ts';
import { runCrowd } from './load/crowds.ts';
import { judgedRun } from './load/judged-run.ts';
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

const readArguments = () => {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string', default: '5' },
      'rate-factor': { type: 'string', default: '3' },
      crowd: { type: 'string' },
    },
  });
  const minutes = Number(values.minutes);
  const rateFactor = Number(values['rate-factor']);
  if (!(minutes > 0 && minutes <= 60)) throw new Error('--minutes must be a number up to 60');
  if (!(rateFactor >= 1 && rateFactor <= 20)) throw new Error('--rate-factor must be a number from 1 to 20');
  return { minutes, rateFactor, crowd: values.crowd };
};

const { crowd, ...options } = readArguments();
await judgedRun(options.minutes, () => (crowd === undefined ? overload(options) : runCrowd(crowd)));
