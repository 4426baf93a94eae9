import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { type Contender, runRound } from '../support/contender.ts';
import { openCounters, perItem } from '../support/counters.ts';
import { attribute, readProfile, type Window } from '../support/cpu-profile.ts';
import { openEventFeed } from '../support/event-feed.ts';
import type { Figure, Part } from '../support/figures.ts';
import { openParley, QUESTIONS } from '../../test/kit/parley.ts';
import { openSink } from '../../test/kit/sink.ts';
import { stopAll } from '../../test/kit/processes.ts';
import { wakeUpsOf } from '../../test/kit/services.ts';

const FOLDER = join(import.meta.dirname, '../../.local/bench/profile');
const IN_FLIGHT = [200, 50];
const SECONDS = 4;
const EVENTS = 8_000;
const STEADY_PER_SECOND = 500;
const SHOWN = 25;

const PROCESSES = ['API', 'reply worker', 'delivery worker'] as const;
type Name = (typeof PROCESSES)[number];

/** One load: its processes, its time span, its number of turns or events, and the wake-ups of each process. */
type Load = { label: string; of: Name[]; window: Window; items: number; wakeUps: Record<string, number> };

const nowUs = (): number => Number(process.hrtime.bigint() / 1000n);

/**
 * Measures how the CPU of a turn and of an event is divided among steps, and how often each process wakes up for them.
 */
export const profile: Part = async ({ scale }, say) => {
  rmSync(FOLDER, { recursive: true, force: true });
  const parley = await openParley('profile');
  const { services } = parley;
  const [sink, counters] = [await openSink(), await openCounters(services)];
  const assistant = await parley.addAssistant();
  const feed = await openEventFeed(parley, sink);
  const folderOf = (name: Name): string => join(FOLDER, name.replaceAll(' ', '-'));
  const startProfiled = async (name: Name) => {
    mkdirSync(folderOf(name), { recursive: true });
    const nodeArgs = ['--cpu-prof', '--cpu-prof-interval=500', `--cpu-prof-dir=${folderOf(name)}`];
    return parley.start(name, {}, nodeArgs);
  };
  const api = await startProfiled('API');
  const pids = {
    API: api.pid,
    'reply worker': (await startProfiled('reply worker')).pid,
    'delivery worker': (await startProfiled('delivery worker')).pid,
    ...services.pids,
  };

  const loads: Load[] = [];
  const figures: Figure[] = [];
  const note = async (label: string, of: Name[], run: () => Promise<number>): Promise<void> => {
    say(`profile: ${label}`);
    const woken = () => Object.fromEntries(Object.entries(pids).map(([name, pid]) => [name, wakeUpsOf(pid)]));
    const [before, fromUs, wokenBefore] = [await counters.read(pids), nowUs(), woken()];
    const items = await run();
    const [after, toUs, wokenAfter] = [await counters.read(pids), nowUs(), woken()];
    const wakeUps = Object.fromEntries(
      Object.entries(wokenAfter).map(([name, count]) => [name, (count - (wokenBefore[name] ?? 0)) / items]),
    );
    loads.push({ label, of, window: { fromUs, toUs }, items, wakeUps });
    for (const [name, us] of Object.entries(perItem(before, after, items).cpu)) {
      figures.push({ id: `profile.${label}.${name}`, what: `${label}: ${name}`, unit: 'µs', value: us });
      const what = `${label}: ${name} woken`;
      figures.push({ id: `profile.${label}.${name}.woken`, what, unit: '×', value: wakeUps[name] ?? 0 });
    }
  };

  const contender: Contender = { name: 'whole', target: { kind: 'chat', port: api.port, ...assistant }, pids };
  const turnsOf = (inFlight: number, seconds: number) => async () => {
    const run = { contender, messages: QUESTIONS, counters, inFlight };
    return (await runRound(run, { seconds, warmUpSeconds: 0.1 })).total;
  };
  await turnsOf(50, 2)();
  for (const inFlight of IN_FLIGHT) {
    await note(`a turn at ${inFlight}`, ['API', 'reply worker'], turnsOf(inFlight, SECONDS * scale));
  }
  await feed.drain(2_000 * scale);
  const talks = await feed.openTalks(2_000);
  await note(`an event at ${STEADY_PER_SECOND}/s`, ['delivery worker'], async () => {
    await feed.stream(talks, STEADY_PER_SECOND, SECONDS * scale);
    return STEADY_PER_SECOND * SECONDS * scale;
  });
  await note('an event drained', ['delivery worker'], async () => {
    await feed.drain(EVENTS * scale);
    return EVENTS * scale;
  });

  await stopAll(); // a process writes its profile at its end

  for (const name of PROCESSES) {
    const read = readProfile(folderOf(name));
    for (const { label, window, items } of loads.filter(({ of }) => of.includes(name))) {
      const { steps, functions } = attribute(read, window);
      console.log(`\n${name}, ${label}: µs by step`);
      for (const [step, us] of [...steps].toSorted(([, one], [, other]) => other - one)) {
        figures.push({
          id: `profile.${label}.${name}.${step}`,
          what: `${label}: ${name}: ${step}`,
          unit: 'µs',
          value: us / items,
        });
        console.log(`${(us / items).toFixed(1).padStart(8)}  ${step}`);
      }
      console.log(`  most expensive functions`);
      for (const [place, us] of [...functions].toSorted(([, one], [, other]) => other - one).slice(0, SHOWN)) {
        console.log(`${(us / items).toFixed(1).padStart(8)}  ${place}`);
      }
    }
  }
  return { figures, detail: { loads } };
};
