import type { Connection } from 'mongoose';
import { serverDate } from '../platform/clock.ts';
import { notFound } from '../platform/errors.ts';
import { collectionOf } from '../platform/mongo.ts';
import { missModel, type StoredMiss } from './miss.ts';
import { searchWordsOf } from './search-words.ts';

const LISTED_MAX = 200;
const LOOKS_MAX = 10;

/** Lists the groups of misses, and ends them. The projection makes them. */
export const createMissStore = (connection: Connection) => {
  const model = missModel(connection);
  const misses = collectionOf<StoredMiss>(model);

  /** Gives a group another question after the conversation of its question was erased. Without examples it is deleted. */
  const replaceQuestion = async ({ _id, conversationId, examples }: StoredMiss): Promise<void> => {
    const [example] = examples;
    const same = { _id, conversationId };
    if (!example) {
      await misses.deleteOne({ ...same, examples: [] });
      return;
    }
    const { question } = example;
    await misses.updateOne(
      { ...same, 'examples.conversationId': example.conversationId },
      {
        $set: {
          question,
          conversationId: example.conversationId,
          words: [...searchWordsOf(question)],
          vector: null,
          model: null,
        },
      },
    );
  };

  return {
    model,

    /** The open groups, the most frequent first. */
    list: (assistantId: string): Promise<StoredMiss[]> =>
      misses
        .find({ assistantId, state: 'open' }, { projection: { vector: 0, words: 0 } })
        .sort({ count: -1, lastAt: -1, _id: 1 })
        .limit(LISTED_MAX)
        .toArray(),

    exists: async (assistantId: string, missId: string): Promise<boolean> =>
      (await misses.findOne({ _id: missId, assistantId }, { projection: { _id: 1 } })) !== null,

    dismiss: async (assistantId: string, missId: string): Promise<void> => {
      const changed = await misses.updateOne({ _id: missId, assistantId }, { $set: { state: 'dismissed' } });
      if (changed.matchedCount === 0) throw notFound();
    },

    /** Ends a group with a knowledge entry. False if the group was already taught. */
    markTaught: async (assistantId: string, missId: string, entryId: string): Promise<boolean> => {
      const changed = await misses.updateOne(
        { _id: missId, assistantId, state: { $ne: 'taught' } },
        { $set: { state: 'taught', taughtAt: serverDate(), entryId } },
      );
      return changed.matchedCount === 1;
    },

    /** The text of a conversation that groups hold: exactly what an erasure removes. */
    findTextsOf: async (conversationId: string) => {
      const holds = [
        { conversationId },
        { 'examples.conversationId': conversationId },
        { 'answer.conversationId': conversationId },
      ];
      const groups = await misses.find({ $or: holds }, { projection: { vector: 0 } }).toArray();
      return groups.map(({ _id, question, examples, answer, ...group }) => ({
        missId: _id,
        question: group.conversationId === conversationId ? question : null,
        examples: examples
          .filter((one) => one.conversationId === conversationId)
          .map(({ question: asked, at }) => ({ question: asked, at })),
        answer: answer?.conversationId === conversationId ? answer.content : null,
      }));
    },

    /** Removes all text of these conversations. A group that has no other text is deleted. */
    eraseConversations: async (conversationIds: string[]): Promise<void> => {
      const conversationId = { $in: conversationIds };
      await misses.updateMany(
        { 'examples.conversationId': conversationId },
        { $pull: { examples: { conversationId } } },
      );
      await misses.updateMany({ 'answer.conversationId': conversationId }, { $set: { answer: null } });
      // A group may change meanwhile, so it is looked at again.
      for (let looks = 0; looks < LOOKS_MAX; looks += 1) {
        const rows = await misses.find({ conversationId }, { projection: { vector: 0 } }).toArray();
        if (rows.length === 0) return;
        for (const row of rows) await replaceQuestion(row);
      }
    },
  };
};

export type MissStore = ReturnType<typeof createMissStore>;
