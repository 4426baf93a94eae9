import { runRound } from '../support/contender.ts';
import { openCounters } from '../support/counters.ts';
import { figureOf, type Part } from '../support/figures.ts';
import { runLoad } from '../support/load-settings.ts';
import { openParley, QUESTIONS } from '../../test/kit/parley.ts';

const WAITING = 20;

/**
 * Measures one session that always has pending turns. Its turns are answered one by one, so the rate shows how long a
 * turn takes.
 */
export const hot: Part = async ({ rounds, seconds, warmUpSeconds }, say) => {
  say('hot: one session with 20 pending turns');
  const parley = await openParley('hot');
  const { services } = parley;
  const counters = await openCounters(services);
  const [api, worker] = [await parley.start('API'), await parley.start('reply worker')];
  const assistant = await parley.addAssistant();
  const target = { kind: 'chat', port: api.port, ...assistant } as const;
  const pids = { API: api.pid, 'reply worker': worker.pid, ...services.pids };
  // Many sessions warm up the processes, so that the measured session runs at full speed from the start.
  const warm = { name: 'warm', target, pids };
  await runRound({ contender: warm, messages: QUESTIONS, counters, inFlight: 50 }, { seconds: 2, warmUpSeconds: 0.1 });

  const perSecond: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const session = { sessions: 1, sessionPrefix: `${assistant.sessionPrefix}-hot-${round}` };
    const load = { ...target, ...session, messages: QUESTIONS, inFlight: WAITING, seconds, warmUpSeconds };
    perSecond.push((await runLoad(load)).perSecond);
  }
  return {
    figures: [
      figureOf('hot.turns', 'one session, always with 20 pending turns', 'turns/s', perSecond),
      figureOf(
        'hot.serial',
        'one session: from one answer to the next',
        'ms',
        perSecond.map((rate) => 1000 / rate),
      ),
    ],
    detail: {},
  };
};
