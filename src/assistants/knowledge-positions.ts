import { serverDate, serverNow } from '../process/clock.ts';
import { invalid, notFound } from '../process/errors.ts';
import type { KnowledgePositions, assistantModels } from './assistant.ts';
import { MAX_KNOWLEDGE } from './knowledge-input.ts';

/**
 * An import that stays unfinished for longer than this counts as crashed. Its range no longer counts towards the limit.
 */
const DEAD_AFTER_MS = 10 * 60_000;

const tooMany = () =>
  invalid(
    'knowledge',
    'too_many',
    `would have more than ${MAX_KNOWLEDGE.toLocaleString('en')} entries, the most an assistant may have`,
  );

/** The filter for visible entries: entries that are neither replaced nor part of an unfinished import. */
export const visibleEntries = (assistantId: string, { from = 0, last, unfinished = [] }: KnowledgePositions) => ({
  assistantId,
  // Positions that were assigned after `last` was read are left out, because they may belong to an unfinished import.
  position: { $gte: from, ...(last !== undefined && { $lte: last }) },
  ...(unfinished.length > 0 && {
    $nor: unfinished.map((range) => ({ position: { $gte: range.first, $lte: range.last } })),
  }),
});

/**
 * Assigns positions to entries and decides which entries are visible. All of this is stored in the assistant's
 * document, so every change is atomic.
 */
export const createKnowledgePositions = ({ assistants, knowledge }: ReturnType<typeof assistantModels>) => {
  const read = async (assistantId: string): Promise<KnowledgePositions> =>
    (await assistants.findById(assistantId).select({ knowledgePlaces: 1 }).lean())?.knowledgePlaces ?? {};

  const appendRange = async (assistantId: string, count: number) => {
    // Assistants that were created before this field existed have no highest position, so it is read from their
    // entries.
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

  /**
   * The number of entries before position `first`. Ranges of running imports count too, so that concurrent imports
   * together cannot exceed the limit.
   */
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
     * Reserves `count` positions for one import after all assigned positions, so that concurrent imports do not mix.
     * The entries at these positions stay invisible until `publish`. Throws if the assistant would have too many
     * entries.
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
     * Makes the import's entries visible in one write. With `replace`, the same write hides all earlier entries.
     * Returns the first visible position.
     */
    publish: async (assistantId: string, first: number, { replace }: { replace: boolean }): Promise<number> => {
      const update = {
        $inc: { version: 1 },
        $set: { 'semantic.stale': true },
        // Entries before this position are hidden, so the ranges of crashed imports before this position are no longer
        // needed.
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
