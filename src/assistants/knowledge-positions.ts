import { serverDate, serverNow } from '../platform/clock.ts';
import { invalid, notFound } from '../platform/errors.ts';
import type { assistantModels, KnowledgePositions } from './assistant.ts';
import { MAX_KNOWLEDGE } from './knowledge-input.ts';

/** An import that is not at its end by then has died, and what it took no longer counts. */
const DEAD_AFTER_MS = 10 * 60_000;

const tooMany = () =>
  invalid(
    'knowledge',
    'too_many',
    `would have more than ${MAX_KNOWLEDGE.toLocaleString('en')} entries, the most an assistant may have`,
  );

/** The entries that are read: neither replaced nor of an import that has not ended. */
export const visibleEntries = (assistantId: string, { from = 0, last, unfinished = [] }: KnowledgePositions) => ({
  assistantId,
  // No further than was given out when the places were read: what came later may be half there.
  position: { $gte: from, ...(last !== undefined && { $lte: last }) },
  ...(unfinished.length > 0 && {
    $nor: unfinished.map((range) => ({ position: { $gte: range.first, $lte: range.last } })),
  }),
});

/** Which places the entries of assistants stand at. All that decides who reads what is in the assistant's one document. */
export const createKnowledgePositions = ({ assistants, knowledge }: ReturnType<typeof assistantModels>) => {
  const read = async (assistantId: string): Promise<KnowledgePositions> =>
    (await assistants.findById(assistantId).select({ knowledgePlaces: 1 }).lean())?.knowledgePlaces ?? {};

  const appendRange = async (assistantId: string, count: number) => {
    // For assistants made before places were counted.
    const highest = (await knowledge.findOne({ assistantId }).sort({ position: -1 }).lean())?.position ?? 0;
    const last = { $add: [{ $max: ['$knowledgePlaces.last', highest] }, count] };
    const range = {
      first: { $subtract: ['$knowledgePlaces.last', count - 1] },
      last: '$knowledgePlaces.last',
      at: serverDate(),
    };
    const unfinished = { $concatArrays: [{ $ifNull: ['$knowledgePlaces.unfinished', []] }, [range]] };
    const stored = await assistants
      .findOneAndUpdate(
        { _id: assistantId },
        [{ $set: { 'knowledgePlaces.last': last } }, { $set: { 'knowledgePlaces.unfinished': unfinished } }],
        { returnDocument: 'after', updatePipeline: true },
      )
      .lean();
    if (!stored) throw notFound();
    return stored.knowledgePlaces ?? {};
  };

  /** Those that others are still bringing count as there: of imports at once, no two fill the same room. */
  const countBefore = async (assistantId: string, first: number, positions: KnowledgePositions): Promise<number> => {
    const reserved = (positions.unfinished ?? [])
      .filter((range) => range.first < first && range.first >= (positions.from ?? 0))
      .filter(({ at }) => at.getTime() > serverNow() - DEAD_AFTER_MS)
      .reduce((sum, range) => sum + range.last - range.first + 1, 0);
    return reserved + (await knowledge.countDocuments(visibleEntries(assistantId, { ...positions, last: first - 1 })));
  };

  return {
    read,

    /**
     * So many places after all that were given out, for one import alone: two at once do not get into each other's order.
     * Nobody reads what stands there before `finish`.
     */
    reserve: async (assistantId: string, count: number, { replace }: { replace: boolean }): Promise<number> => {
      if (count > MAX_KNOWLEDGE) throw tooMany();
      const positions = await appendRange(assistantId, count);
      const first = (positions.last ?? count) - count + 1;
      if (!replace && (await countBefore(assistantId, first, positions)) + count > MAX_KNOWLEDGE) {
        await assistants.updateOne({ _id: assistantId }, { $pull: { 'knowledgePlaces.unfinished': { first } } });
        throw tooMany();
      }
      return first;
    },

    /**
     * One write, after the entries are there: from now on all of them are read and, with `replace`, none that stand before
     * them. Answers where the valid ones begin.
     */
    publish: async (assistantId: string, first: number, { replace }: { replace: boolean }): Promise<number> => {
      const update = {
        $inc: { version: 1 },
        $set: { 'semantic.stale': true },
        // Nobody reads before these any more, so that what died there may be forgotten.
        $pull: { 'knowledgePlaces.unfinished': { first: replace ? { $lte: first } : first } },
        ...(replace && { $max: { 'knowledgePlaces.from': first } }),
      };
      const stored = await assistants
        .findOneAndUpdate({ _id: assistantId }, update, { returnDocument: 'after' })
        .lean();
      if (!stored) throw notFound();
      return stored.knowledgePlaces?.from ?? 0;
    },
  };
};
