import { setTimeout as sleep } from 'node:timers/promises';
import { printVerdicts, row, type Verdict } from '../support/table.ts';
import { drive } from './drive.ts';
import { countOf, none, perSecond, printExamples, turnVerdicts } from './figures.ts';
import { judgeEvents, untilDone } from './events.ts';
import { judgeOverload } from './overload-verdicts.ts';
import { startSamples } from './samples.ts';
import { openLoadedService } from './service.ts';
import type { Told } from './settings.ts';
import { verifyTurns } from './verify.ts';

const WARM_UP = { pace: { inFlight: 50 }, seconds: 5 };
const CAPACITY = { pace: { inFlight: 100 }, seconds: 15 };
const LIGHT_PER_SECOND = 30;
const LIGHT_SECONDS = 20;
/** The light load begins so long before the overload ends, so that it runs at the moment of the end. */
const LIGHT_AHEAD_S = 3;
const SESSIONS = 10_000;
const LIGHT_SESSIONS = 500;
const SAMPLE_EVERY_MS = 2_000;
const DONE_WITHIN_MS = 120_000;
/** A longer wait than the limit, so that the stored events can be compared also if the limit is missed. */
const WAIT_FOR_EVENTS_MS = 600_000;

type OverloadOptions = { minutes: number; rateFactor: number };

/**
 * Offers a multiple of what one API, one reply worker and one delivery worker can do, and judges what callers see, what
 * is stored, and how much memory it takes.
 */
export const overload = async ({ minutes, rateFactor }: OverloadOptions): Promise<boolean> => {
  const loaded = await openLoadedService('load');
  const { door, service, sink } = loaded;
  const told: Told = {};
  const run = async (name: string, some: { pace: Parameters<typeof drive>[0]['pace']; seconds: number }) => {
    const sessions = name.startsWith('light') ? LIGHT_SESSIONS : SESSIONS;
    const driven = await drive({ ...door, ...some, sessions, sessionPrefix: name, retry: false });
    Object.assign(told, driven.told);
    await sink.take();
    return driven.result;
  };
  const light = { pace: { rate: LIGHT_PER_SECOND }, seconds: LIGHT_SECONDS };
  const emptying = setInterval(() => void sink.take(), SAMPLE_EVERY_MS);
  try {
    await run('warm-up', WARM_UP);
    await untilDone(service, DONE_WITHIN_MS);
    const before = await run('light-before', light);
    const most = await run('capacity', CAPACITY);
    const capacity = perSecond(most, countOf(most, 200, 202));
    await untilDone(service, DONE_WITHIN_MS);

    console.log(row('capacity with 100 in flight, turns/s', capacity.toFixed(0)));
    const seconds = minutes * 60;
    const samples = startSamples(loaded, SAMPLE_EVERY_MS);
    const [over, after] = await Promise.all([
      run('over', { pace: { rate: rateFactor * capacity }, seconds }),
      sleep((seconds - LIGHT_AHEAD_S) * 1000).then(() =>
        run('light-after', { ...light, seconds: LIGHT_SECONDS + LIGHT_AHEAD_S }),
      ),
    ]);
    samples.stop();
    const done = await untilDone(service, WAIT_FOR_EVENTS_MS);
    const differences = await verifyTurns(told, loaded);

    const verdicts: Verdict[] = [
      ...judgeOverload({
        capacity,
        rateFactor,
        over,
        light: { before, after, seconds: LIGHT_SECONDS },
        series: samples.series,
      }),
      {
        rule: `seconds until all turns and events had ended ≤ ${DONE_WITHIN_MS / 1000}`,
        found: done.unfinished.join(', ') || (done.ms / 1000).toFixed(1),
        kept: done.unfinished.length === 0 && done.ms <= DONE_WITHIN_MS,
      },
      none('samples that failed', samples.failed()),
      ...turnVerdicts(differences),
      ...(await judgeEvents(service)),
    ];
    console.log(row('sessions read / accepted turns compared', `${differences.sessions} / ${differences.turns}`));
    console.log('');
    const kept = printVerdicts(verdicts);
    printExamples(differences);
    return kept;
  } finally {
    clearInterval(emptying);
    await loaded.close();
  }
};
