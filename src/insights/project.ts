import type { ClientSession, Connection } from 'mongoose';
import type { Logger } from '../platform/logger.ts';
import { collectionOf } from '../platform/mongo.ts';
import { isMongoUnavailable } from '../platform/mongo-failures.ts';
import type { ChangedConversations, ReadConversation } from './changed-conversations.ts';
import { type ProjectedConversation, searchModel } from './conversation-search.ts';
import { type Figures, incrementsOf } from './figures.ts';
import type { GroupMisses } from './group-misses.ts';
import { missModel, type StoredMiss } from './miss.ts';
import { isCurrent, type Plan, planProjection, splitByLessons, withMiss } from './plan-projection.ts';

/** A step that another worker has taken meanwhile. Nothing was written. */
class Overtaken extends Error {
  override name = 'Overtaken';
}

/** Conversations with more messages than were read, and conversations that could not be projected. */
export type Projected = { behind: string[]; failed: string[] };

type Dependencies = {
  connection: Connection;
  changed: ChangedConversations;
  figures: Figures;
  groupMisses: GroupMisses;
  erase: (conversationIds: string[]) => Promise<void>;
  logger: Logger;
};

/**
 * Projects some conversations: reads their new messages, and writes search words, figures and misses in one
 * transaction. The transaction is guarded by the last projected `seq` of each conversation, so each message counts
 * exactly once, even if two workers project at the same time.
 */
export const createProject = ({ connection, changed, figures, groupMisses, erase, logger }: Dependencies) => {
  const rows = collectionOf<ProjectedConversation>(searchModel(connection));
  const hours = collectionOf(figures.model);
  const misses = collectionOf<StoredMiss>(missModel(connection));

  const inTransaction = async (write: (session: ClientSession) => Promise<void>): Promise<void> => {
    const session = await connection.startSession();
    try {
      session.startTransaction();
      await write(session);
      await session.commitTransaction();
    } catch (cause) {
      if (session.inTransaction()) await session.abortTransaction().catch(() => undefined);
      throw cause;
    } finally {
      await session.endSession();
    }
  };

  const write = async (plans: Plan[]): Promise<void> => {
    const learners = plans.map(({ conversation: { conversationId, assistantId }, lessons, before }) => ({
      conversationId,
      assistantId,
      lessons,
      lastMissId: before?.missId ?? null,
    }));
    const { writes, lastMissIds } = await groupMisses(learners);
    await inTransaction(async (session) => {
      const statements = plans.map((one) => withMiss(one, lastMissIds.get(one.conversation.conversationId)));
      const { matchedCount, insertedCount } = await rows.bulkWrite(statements, { session });
      if (matchedCount + insertedCount !== plans.length) throw new Overtaken('another worker has projected this');
      const increments = incrementsOf(plans.flatMap((plan) => plan.increments));
      if (increments.length > 0) await hours.bulkWrite(increments, { session });
      if (writes.length > 0) await misses.bulkWrite(writes, { session });
    });
  };

  const noteFailure = (cause: unknown, { conversationId, assistantId }: ReadConversation): void =>
    logger.warn({ err: cause, conversationId, assistantId }, 'a conversation was not projected');

  const plan = async (read: ReadConversation, before: ProjectedConversation | null): Promise<Plan> =>
    planProjection(read, before, await changed.readEntries(read, before?.seq ?? 0));

  /** Writes all plans together, or each on its own if that fails. So one bad conversation does not stop the others. */
  const writeAll = async (plans: Plan[]): Promise<Plan[]> => {
    if (plans.length === 0) return [];
    try {
      await write(plans);
      return [];
    } catch (cause) {
      if (isMongoUnavailable(cause)) throw cause;
      if (plans.length === 1) {
        for (const { conversation } of plans) noteFailure(cause, conversation);
        return plans;
      }
    }
    const failed: Plan[] = [];
    for (const one of plans) failed.push(...(await writeAll([one])));
    return failed;
  };

  return async (keys: string[]): Promise<Projected> => {
    const reads = (await changed.read(keys)).filter(({ channel }) => channel !== 'playground');
    const stored = await rows.find({ _id: { $in: reads.map(({ conversationId }) => conversationId) } }).toArray();
    const known = new Map(stored.map((row) => [row._id, row]));
    const plans: Plan[] = [];
    const failed: string[] = [];
    for (const read of reads) {
      const before = known.get(read.conversationId) ?? null;
      if (isCurrent(read, before)) continue;
      try {
        plans.push(await plan(read, before));
      } catch (cause) {
        if (isMongoUnavailable(cause)) throw cause;
        noteFailure(cause, read);
        failed.push(read._id);
      }
    }
    const unwritten = new Set<Plan>();
    for (const some of splitByLessons(plans)) for (const one of await writeAll(some)) unwritten.add(one);
    const written = plans.filter((one) => !unwritten.has(one));
    // A conversation that was erased since it was read has left its words in the projection.
    const erased = await changed.findErased(written.map(({ conversation }) => conversation));
    if (erased.length > 0) await erase(erased);
    return {
      behind: written.filter(({ isBehind }) => isBehind).map(({ conversation }) => conversation._id),
      failed: [...failed, ...[...unwritten].map(({ conversation }) => conversation._id)],
    };
  };
};

export type Project = ReturnType<typeof createProject>;
