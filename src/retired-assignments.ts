import type { Connection } from 'mongoose';
import { conversationModels, type StoredConversation } from './conversations/conversation.ts';
import { serverDate } from './platform/clock.ts';
import { collectionOf } from './platform/mongo.ts';

const UPGRADE = 'end-retired-assignments';
const AT_ONCE = 500;

const ASSIGN = 'conversation.assign';
/** What ends an assignment. A resolved conversation may have been reopened by its visitor since. */
const ENDED_BY = ['conversation.hand_back', 'conversation.resolve', 'conversation.reopen'];

type Assigned = Pick<StoredConversation, '_id' | 'conversationId' | 'assigneeId'>;
type Upgrade = { _id: string; doneAt: Date };

/**
 * Earlier releases kept the assignment of a conversation that was handed back, resolved or reopened. This function ends those
 * assignments, once for each database. An assignment is one of them if the last change in the audit trail ends it.
 * Returns how many were ended.
 */
export const createEndRetiredAssignments = (connection: Connection, draining: AbortSignal) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);
  const audit = connection.collection('audit');
  const upgrades = connection.collection<Upgrade>('upgrades');

  const findRetired = async (some: Assigned[]): Promise<Assigned[]> => {
    const target = { $in: some.map(({ conversationId }) => conversationId) };
    const last = await audit
      .aggregate<{ _id: string; action: string }>([
        { $match: { target, action: { $in: [ASSIGN, ...ENDED_BY] } } },
        { $sort: { target: 1, at: 1, _id: 1 } },
        { $group: { _id: '$target', action: { $last: '$action' } } },
      ])
      .toArray();
    const ended = new Set(last.filter(({ action }) => action !== ASSIGN).map(({ _id }) => _id));
    return some.filter(({ conversationId }) => ended.has(conversationId));
  };

  const end = async (some: Assigned[]): Promise<number> => {
    const retired = await findRetired(some);
    if (retired.length === 0) return 0;
    const { modifiedCount } = await conversations.bulkWrite(
      retired.map(({ _id, conversationId, assigneeId }) => ({
        updateOne: { filter: { _id, conversationId, assigneeId }, update: { $unset: { assigneeId: 1 as const } } },
      })),
      { ordered: false },
    );
    return modifiedCount;
  };

  return async (): Promise<number> => {
    if (await upgrades.findOne({ _id: UPGRADE })) return 0;
    const assigned = conversations.find<Assigned>(
      { assigneeId: { $exists: true } },
      { projection: { conversationId: 1, assigneeId: 1 } },
    );
    let ended = 0;
    let batch: Assigned[] = [];
    for await (const one of assigned) {
      if (draining.aborted) return ended; // the next worker begins again
      batch.push(one);
      if (batch.length < AT_ONCE) continue;
      ended += await end(batch);
      batch = [];
    }
    ended += await end(batch);
    await upgrades.updateOne({ _id: UPGRADE }, { $set: { doneAt: serverDate() } }, { upsert: true });
    return ended;
  };
};
