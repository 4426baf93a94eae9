import { setTimeout as sleep } from 'node:timers/promises';
import { loadBase } from '@parley/understanding/evaluation';
import { p99Of } from '../../test/kit/quantiles.ts';
import { type Figure, figureOf, type Part } from '../support/figures.ts';
import { drive, openMixed, untilVectorsAreMade } from '../support/mixed-load.ts';
import { createMixedTurns, MIXED_BASES, type MixedTurn } from '../support/mixed-turns.ts';

/** How many entries are imported at once, and how long one may wait until a search by meaning finds them all. */
const IMPORTS = [2_000, 10_000];
/** Mixed turns a second of other assistants, before and during the imports. */
const TURNS_PER_SECOND = 25;
const ALONE_SECONDS = 20;
/** A run of turns is so long that the imports end within a few of them. */
const RUN_SECONDS = 5;
const WITHIN_MS = 400_000;

/** Entries of the evaluation's domains. Each has a number, so no two of their questions share a vector. */
const entriesOf = (count: number) => {
  const entries = MIXED_BASES.flatMap((name) => loadBase(name).knowledge);
  return Array.from({ length: count }, (_, nth) => {
    const { entryId: _id, ...entry } = entries[nth % entries.length] as (typeof entries)[number];
    const about = ` (${Math.floor(nth / entries.length)})`;
    return { ...entry, question: entry.question + about, variants: [], answer: entry.answer + about };
  });
};

/** How long imported entries wait until they are found by meaning, and what other assistants notice of it. */
export const imports: Part = async ({ scale }, say) => {
  const nextTurns = createMixedTurns();
  const { parley, assistants, caller } = await openMixed('imports');
  await untilVectorsAreMade(parley, assistants);

  const load = { perSecond: TURNS_PER_SECOND };
  const timesOf = async (turns: MixedTurn[], seconds: number): Promise<number[]> =>
    (await drive(caller, turns, load, seconds)).map(({ ms }) => ms);
  const turnsFor = (seconds: number): MixedTurn[] => nextTurns(TURNS_PER_SECOND * seconds + 20);

  await timesOf(turnsFor(RUN_SECONDS), RUN_SECONDS);
  const figures: Figure[] = [];
  for (const asked of IMPORTS) {
    const alone = p99Of(await timesOf(turnsFor(ALONE_SECONDS), ALONE_SECONDS));
    const count = Math.ceil(asked * scale);
    const { assistantId } = await parley.service.assistants.createAssistant({ name: 'imports', languages: ['en'] });
    const startedAt = performance.now();
    let tookMs: number | null = null;
    const importing = (async (): Promise<void> => {
      await parley.service.assistants.addKnowledge(assistantId, entriesOf(count));
      for (;;) {
        const { semantic } = await parley.service.assistants.getAssistant(assistantId);
        if (semantic?.total === count && semantic.done === count) break;
        if (performance.now() - startedAt > WITHIN_MS) throw new Error(`${count} entries took too long`);
        await sleep(100);
      }
      tookMs = performance.now() - startedAt;
    })();
    const times: number[] = [];
    do times.push(...(await timesOf(turnsFor(RUN_SECONDS), RUN_SECONDS)));
    while (tookMs === null);
    await importing;
    const seconds = (tookMs ?? Number.NaN) / 1000;
    const ratio = p99Of(times) / alone;
    say(`imports, ${count}: ${seconds.toFixed(1)} s, p99 of turns ${alone.toFixed(0)} → ${p99Of(times).toFixed(0)} ms`);
    const name = `${asked.toLocaleString('en')} imported entries`;
    figures.push(
      figureOf(`imports.${asked}.seconds`, `${name}: found by meaning after`, 's', [seconds]),
      figureOf(`imports.${asked}.alone`, `${TURNS_PER_SECOND} mixed turns a second before: p99`, 'ms', [alone]),
      figureOf(`imports.${asked}.p99`, `${TURNS_PER_SECOND} mixed turns a second meanwhile: p99`, 'ms', [p99Of(times)]),
      figureOf(`imports.${asked}.ratio`, `${name}: p99 of turns meanwhile ÷ before`, '', [ratio]),
    );
  }

  return { figures, detail: {} };
};
