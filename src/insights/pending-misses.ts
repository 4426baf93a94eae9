import { type ClientSession, type Connection, Schema, type Model } from 'mongoose';
import { serverDate, serverNow } from '../process/clock.ts';
import { mapAtMost } from '../process/slots.ts';
import { collectionOf, inTransaction } from '../mongo/mongo.ts';
import { isMongoUnavailable } from '../mongo/failures.ts';
import type { Logger } from '../process/logger.ts';
import { type ProjectedConversation, searchModel } from './conversation-search.ts';
import type { GroupMisses } from './group-misses.ts';
import { type Lesson, LESSONS_AT_ONCE, missModel, type StoredMiss } from './misses.ts';

/** How many assistants are grouped at once. The model serves them side by side. */
const ASSISTANTS_AT_ONCE = 4;
/** Lessons that have waited longer are grouped by their words, without the model, so that they never pile up. */
const LATE_MS = 60_000;
/** How long one call may work. */
const WORK_MS = 8_000;

/** The lessons that one step of the projection has read of a conversation. Removed once they are grouped. */
type StoredPending = {
  /** The conversation id and the last `seq` of the step, so that ids sort in the order of the messages. */
  _id: string;
  assistantId: string;
  conversationId: string;
  at: Date;
  lessons: Lesson[];
};
type Step = { conversationId: string; assistantId: string; seq: number; lessons: Lesson[] };

const schema = new Schema<StoredPending>(
  { _id: { type: String, required: true } },
  { collection: 'pendingMisses', versionKey: false, strict: false },
);
schema.index({ assistantId: 1, at: 1, _id: 1 });
schema.index({ conversationId: 1 });

/**
 * Questions that wait to be grouped. The projection stores them with its own writes. They are grouped apart from it,
 * because the model may be slow. Each is grouped exactly once: the transaction that changes a group also removes the
 * question from here.
 */
export type PendingMisses = {
  model: Model<StoredPending>;

  /** Stores what is to be learned from some steps, in the transaction of the projection. */
  add: (steps: Step[], session: ClientSession) => Promise<void>;

  eraseConversations: (conversationIds: string[]) => Promise<void>;

  /** Groups what waits, until its time is up. Assistants take turns, one step each. */
  group: (groupMisses: GroupMisses, options: { draining: AbortSignal; logger: Logger }) => Promise<void>;
};

export const createPendingMisses = (connection: Connection): PendingMisses => {
  const model = connection.model<StoredPending>('PendingMisses', schema);
  const pending = collectionOf(model);
  const misses = collectionOf<StoredMiss>(missModel(connection));
  const rows = collectionOf<ProjectedConversation>(searchModel(connection));

  /** The oldest steps of an assistant whose lessons fit one grouping, at least one. */
  const readOldest = async (assistantId: string): Promise<StoredPending[]> => {
    const oldest = await pending.find({ assistantId }).sort({ at: 1, _id: 1 }).limit(LESSONS_AT_ONCE).toArray();
    let lessons = 0;
    return oldest.filter((one, nth) => {
      lessons += one.lessons.length;
      return nth === 0 || lessons <= LESSONS_AT_ONCE;
    });
  };

  /** Groups some lessons of an assistant. False if there are none. */
  const groupSome = async (assistantId: string, groupMisses: GroupMisses): Promise<boolean> => {
    const steps = await readOldest(assistantId);
    const [oldest] = steps;
    if (!oldest) return false;
    const known = await rows
      .find({ _id: { $in: steps.map(({ conversationId }) => conversationId) } }, { projection: { missId: 1 } })
      .toArray();
    const missIds = new Map(known.map(({ _id, missId }) => [_id, missId ?? null]));
    const learners = steps.map(({ conversationId, lessons }) => ({
      conversationId,
      assistantId,
      lessons,
      lastMissId: missIds.get(conversationId) ?? null,
    }));
    const isLate = serverNow() - oldest.at.getTime() > LATE_MS;
    const { writes, lastMissIds } = await groupMisses(learners, { isLate });
    // If the transaction fails, a conversation names a group that does not exist, and is grouped again.
    for (const [_id, missId] of lastMissIds) await rows.updateOne({ _id }, { $set: { missId } });
    await inTransaction(connection, async (session) => {
      const removed = await pending.deleteMany({ _id: { $in: steps.map(({ _id }) => _id) } }, { session });
      if (removed.deletedCount !== steps.length) throw new Error('another worker has grouped this, or it was erased');
      if (writes.length > 0) await misses.bulkWrite(writes, { session });
    });
    return true;
  };

  return {
    model,

    add: async (steps, session) => {
      const at = serverDate();
      const writes = steps
        .filter(({ lessons }) => lessons.length > 0)
        .map(({ conversationId, assistantId, seq, lessons }) => ({
          updateOne: {
            filter: { _id: `${conversationId}:${String(seq).padStart(12, '0')}` },
            update: { $setOnInsert: { assistantId, conversationId, at, lessons } },
            upsert: true,
          },
        }));
      if (writes.length > 0) await pending.bulkWrite(writes, { session });
    },

    eraseConversations: async (conversationIds) => {
      await pending.deleteMany({ conversationId: { $in: conversationIds } });
    },

    group: async (groupMisses, { draining, logger }) => {
      const until = performance.now() + WORK_MS;
      let waiting = await pending.distinct('assistantId');
      while (waiting.length > 0) {
        const more = await mapAtMost(ASSISTANTS_AT_ONCE, waiting, async (assistantId) => {
          if (draining.aborted || performance.now() > until) return false;
          return groupSome(assistantId, groupMisses).catch((cause: unknown) => {
            if (isMongoUnavailable(cause)) throw cause;
            logger.warn({ err: cause, assistantId }, 'questions were not grouped; they wait for the next round');
            return false;
          });
        });
        waiting = waiting.filter((_, nth) => more[nth]);
      }
    },
  };
};
