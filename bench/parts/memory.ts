import { ascending, quantile } from '../../test/kit/quantiles.ts';
import type { Part } from '../support/figures.ts';
import { runLoad } from '../support/load-settings.ts';
import { openParley, QUESTIONS } from '../../test/kit/parley.ts';
import { openSink } from '../../test/kit/sink.ts';
import { memoryMbOf } from '../../test/kit/services.ts';

/** A rate far below what two cores can handle together with deliveries, so that no backlog builds up. */
const PER_SECOND = 300;
const SECONDS = 600;
const SAMPLE_EVERY_MS = 5_000;

/** Applies a steady load for ten minutes. In that time, a process that keeps data of each turn grows visibly. */
export const memory: Part = async ({ scale }, say) => {
  const seconds = SECONDS * scale;
  say(`memory: ${PER_SECOND} turns a second for ${seconds} s`);
  const parley = await openParley('memory');
  const sink = await openSink();
  const assistant = await parley.addAssistant([sink.url]);
  const children = [
    await parley.start('API'),
    await parley.start('reply worker'),
    await parley.start('delivery worker'),
  ];
  const samples = new Map(children.map(({ name }) => [name, [] as number[]]));
  const sampling = setInterval(
    () => {
      for (const { name, pid } of children) samples.get(name)?.push(memoryMbOf(pid));
      void sink.take();
    },
    SAMPLE_EVERY_MS * Math.min(1, scale * 10),
  );
  const target = { kind: 'chat', port: children[0]?.port ?? 0, ...assistant, sessions: 2000 } as const;
  const load = { ...target, messages: QUESTIONS, inFlight: 0, rate: PER_SECOND, seconds, warmUpSeconds: 0 };
  await runLoad(load).finally(() => clearInterval(sampling));

  const middleOf = (numbers: number[]): number => quantile(ascending(numbers), 0.5);
  const grown = [...samples].map(([name, all]) => {
    const part = (from: number, to: number): number =>
      middleOf(all.slice(Math.floor(all.length * from), Math.ceil(all.length * to)));
    // The first 40 % of the time is not counted, because the heap first grows to its working size.
    return { name, from: part(0.4, 0.5), to: part(0.9, 1) };
  });
  return {
    figures: [
      ...grown.map(({ name, to }) => ({ id: `memory.${name}`, what: `${name} at the end`, unit: 'MB', value: to })),
      {
        id: 'memory.growth',
        what: `the most any process grew from minute ${Math.round((0.4 * seconds) / 60)} on`,
        unit: '%',
        value: Math.max(...grown.map(({ from, to }) => (to / from - 1) * 100)),
      },
    ],
    detail: { samples: Object.fromEntries(samples) },
  };
};
