import { setTimeout as sleep } from 'node:timers/promises';
import { p99Of } from '../../test/kit/quantiles.ts';
import { type Figure, figureOf, type Part } from '../support/figures.ts';
import { drive, openMixed, untilVectorsAreMade } from '../support/mixed-load.ts';
import { createMixedTurns, MIXED_BASES, type MixedTurn } from '../support/mixed-turns.ts';

const QUESTIONS = 500;
/** Mixed turns a second of all assistants, before and during the comparison. */
const TURNS_PER_SECOND = 50;
const ALONE_SECONDS = 20;
/** A run of turns is so long that the comparison ends within a few of them. */
const RUN_SECONDS = 5;
const WITHIN_MS = 200_000;

/** How long the comparison of a draft takes, for questions like those of visitors, and what the visitors notice of it. */
export const comparisons: Part = async ({ rounds }, say) => {
  const nextTurns = createMixedTurns();
  const { parley, assistants, caller } = await openMixed('comparisons');
  const base = MIXED_BASES[0] ?? '';
  const assistantId = assistants.get(base)?.assistantId ?? '';
  const { drafts, addKnowledge } = parley.service.assistants;
  await drafts.setDrafts(assistantId, true, {});
  await untilVectorsAreMade(parley, assistants);

  const questionsOf = (count: number): string[] => {
    const found = new Set<string>();
    while (found.size < count)
      for (const turn of nextTurns(100)) if (turn.base === base && found.size < count) found.add(turn.message);
    return [...found];
  };
  // Made before: making them would hold the loop that measures the turns.
  const repeats = Math.min(rounds, 3);
  const questionsByRound = Array.from({ length: 2 * repeats }, () => questionsOf(QUESTIONS));
  /** Changes the draft, so that no result of an earlier comparison serves, and compares. Returns the seconds. */
  const compare = async (round: number): Promise<number> => {
    const entry = { variants: [], answer: 'Yes, on Fridays.', language: null, actions: [], tags: [] };
    await addKnowledge(assistantId, [{ ...entry, question: `Is there a market in week ${round}?` }]);
    const draftRevision = (await drafts.find(assistantId))?.revision ?? 0;
    const unknown = {
      language: null,
      expected: null,
      caseId: null,
      conversationId: null,
      conversationIds: [],
      before: null,
    };
    const questions = (questionsByRound[round] ?? []).map((question) => ({ ...unknown, question }));
    const startedAt = performance.now();
    const { evaluationId } = await parley.service.evaluations.create({
      assistantId,
      set: null,
      questions,
      draftRevision,
    });
    for (;;) {
      const { state, done } = await parley.service.evaluations.get({ assistantId, evaluationId });
      if (state === 'done' && done === QUESTIONS) break;
      if (state === 'failed' || state === 'stopped') throw new Error(`the comparison ended as ${state}`);
      if (performance.now() - startedAt > WITHIN_MS) throw new Error('the comparison took too long');
      await sleep(100);
    }
    return (performance.now() - startedAt) / 1000;
  };
  const load = { perSecond: TURNS_PER_SECOND };
  const timesOf = async (turns: MixedTurn[], seconds: number): Promise<number[]> =>
    (await drive(caller, turns, load, seconds)).map(({ ms }) => ms);
  const turnsFor = (seconds: number): MixedTurn[] => nextTurns(TURNS_PER_SECOND * seconds + 20);

  await timesOf(turnsFor(RUN_SECONDS), RUN_SECONDS);
  const found: Record<'quiet' | 'seconds' | 'alone' | 'beside' | 'ratio', number[]> = {
    quiet: [],
    seconds: [],
    alone: [],
    beside: [],
    ratio: [],
  };
  for (let round = 0; round < repeats; round += 1) {
    found.quiet.push(await compare(2 * round));
    const alone = p99Of(await timesOf(turnsFor(ALONE_SECONDS), ALONE_SECONDS));
    let tookS: number | null = null;
    const comparing = (async (): Promise<void> => {
      tookS = await compare(2 * round + 1);
    })();
    const times: number[] = [];
    do times.push(...(await timesOf(turnsFor(RUN_SECONDS), RUN_SECONDS)));
    while (tookS === null);
    await comparing;
    found.seconds.push(tookS ?? Number.NaN);
    found.alone.push(alone);
    found.beside.push(p99Of(times));
    found.ratio.push(p99Of(times) / alone);
    say(
      `comparisons: ${found.quiet.at(-1)?.toFixed(1)} s in quiet, ${found.seconds.at(-1)?.toFixed(1)} s beside turns, whose p99 is ${alone.toFixed(0)} → ${p99Of(times).toFixed(0)} ms`,
    );
  }

  const figures: Figure[] = [
    figureOf('comparisons.quiet', `${QUESTIONS} questions answered by live and draft`, 's', found.quiet),
    figureOf(
      'comparisons.seconds',
      `${QUESTIONS} questions, beside ${TURNS_PER_SECOND} mixed turns a second`,
      's',
      found.seconds,
    ),
    figureOf('comparisons.alone', `${TURNS_PER_SECOND} mixed turns a second before: p99`, 'ms', found.alone),
    figureOf('comparisons.p99', `${TURNS_PER_SECOND} mixed turns a second meanwhile: p99`, 'ms', found.beside),
    figureOf('comparisons.ratio', 'p99 of turns beside a comparison ÷ before', '', found.ratio),
  ];
  return { figures, detail: {} };
};
