import type { Connection, mongo } from 'mongoose';
import type { DeliveryStore } from '../deliveries/store.ts';
import { homeRange, isUuid } from '../platform/ids.ts';
import { collectionOf, createReader, updateMany } from '../platform/mongo.ts';
import { createAccept } from './accept.ts';
import { createClear } from './compaction.ts';
import { createCommit } from './commit.ts';
import { conversationModels, type RecentTurn, type StoredConversation } from './conversation.ts';
import { createErasure } from './erasure.ts';
import type { Hints } from '../turns/leases.ts';
import { createInbox } from '../operators/inbox.ts';
import { createIdempotencyKeys } from '../turns/idempotency-keys.ts';
import { createMessages } from './messages.ts';
import { createOutbox } from '../deliveries/outbox.ts';
import { createSettle } from './resolve-duplicate.ts';
import { createTransitions } from './transitions.ts';
import { createUnsent } from '../deliveries/pending.ts';
import type { AnswerableConversation } from './turn-end.ts';

const LIST_MAX = 100;

/** Without what only deliveries read. */
const WITHOUT_EVENTS = { outbox: 0, opening: 0 } as const;

/** Neither messages nor finished turns: an answer costs the same however old its conversation is. */
const FOR_ANSWER = {
  conversationId: 1,
  assistantId: 1,
  channel: 1,
  status: 1,
  leadScore: 1,
  leadBecause: 1,
  lowConfidenceStreak: 1,
  engineErrorStreak: 1,
  holding: 1,
  seq: 1,
  storedTo: 1,
  waiting: 1,
} as const;

export type FoundTurn =
  | { state: 'waiting'; conversation: StoredConversation; head: boolean }
  | { state: 'finished'; conversation: StoredConversation; turn: RecentTurn };

/** A head, and when its job was last asked for. */
export type StaleHead = { key: string; turnId: string; headSince: Date; hintedAt: Date };

export type ConversationList = { conversations: StoredConversation[]; next: { updatedAt: Date; key: string } | null };

/** The one door to stored conversations; each verb is a file of its own. */
export const createConversationStore = (dependencies: {
  connection: Connection;
  hints: Hints;
  deliveries: DeliveryStore;
  draining: AbortSignal;
}) => {
  const { connection, hints, deliveries, draining } = dependencies;
  const { conversations: model, messages: messageModel } = conversationModels(connection);
  const conversations = collectionOf<StoredConversation>(model);
  const messages = createMessages(connection);
  const clear = createClear({ connection, messages, hints });
  const idempotencyKeys = createIdempotencyKeys(connection);
  const erasure = createErasure({ connection, messages, idempotencyKeys, deliveries, draining });

  /** By the id's own prefix: a range on `_id`, then the exact match. Malformed and unknown ids look the same. */
  /** Whoever has a key of the assistant: the playground's conversations are none of theirs (contract §1). */
  const ofCaller = (assistantId: string | undefined): mongo.Filter<StoredConversation> =>
    assistantId === undefined ? {} : { assistantId, channel: { $ne: 'playground' } };

  const findById = async (conversationId: string, assistantId?: string): Promise<StoredConversation | null> => {
    if (!isUuid(conversationId)) return null;
    return conversations.findOne(
      { _id: homeRange(conversationId), conversationId, ...ofCaller(assistantId) },
      { projection: WITHOUT_EVENTS },
    );
  };

  const readLanguage = createReader(conversations, { language: 1 });
  const readForAnswer = createReader(conversations, FOR_ANSWER);
  const readSeq = createReader(conversations, { seq: 1, conversationId: 1 });

  return {
    models: [model, messageModel, ...idempotencyKeys.models, ...erasure.models],
    messages,
    idempotencyKeys,
    outbox: createOutbox(connection),
    unsent: createUnsent(connection),
    accept: createAccept({ connection, settle: createSettle({ connection, hints, messages }) }),
    commit: createCommit({ connection, messages, clear }),
    transitions: createTransitions({ connection, messages, clear, findById }),
    inbox: createInbox(connection),
    erase: erasure.erase,
    purgeAgain: erasure.purgeAgain,

    findById,

    /** What was spoken last; null = there is no conversation yet. Batched. */
    findLanguage: async (key: string): Promise<string | null> => (await readLanguage(key))?.language ?? null,

    /** What an answer rests on, batched; null = none yet, or erased. */
    findForAnswer: readForAnswer as (key: string) => Promise<AnswerableConversation | null>,

    /** Where a turn is: waiting, finished, or (null) nowhere, as after an erasure. */
    findTurn: async (turnId: string, assistantId?: string): Promise<FoundTurn | null> => {
      const candidates = await conversations
        .find({ _id: homeRange(turnId), ...ofCaller(assistantId) }, { projection: WITHOUT_EVENTS })
        .toArray();
      for (const conversation of candidates) {
        const index = conversation.waiting.findIndex((turn) => turn.turnId === turnId);
        if (index !== -1) return { state: 'waiting', conversation, head: index === 0 };
        const recent = conversation.recent.find((turn) => turn.turnId === turnId);
        const turn = recent ?? (await messages.findSettledTurn(conversation, turnId));
        if (turn) return { state: 'finished', conversation, turn };
      }
      return null;
    },

    /** The last number given, for those who wait for a higher one; null = erased. */
    findSeq: async ({ key, conversationId }: { key: string; conversationId: string }): Promise<number | null> => {
      const row = await readSeq(key);
      return row?.conversationId === conversationId ? row.seq : null;
    },

    /** Heads that nobody seems to answer: waiting longer than `olderThanMs` by the server's clock. */
    findStaleHeads: async (olderThanMs: number, limit: number): Promise<StaleHead[]> => {
      const older = (path: string | object) => ({ $lt: [path, { $subtract: ['$$NOW', olderThanMs] }] });
      const rows = await conversations
        .find(
          {
            'waiting.0': { $exists: true },
            $expr: { $and: [older('$headSince'), older({ $arrayElemAt: ['$waiting.acceptedAt', 0] })] },
          },
          { projection: { conversationId: 1, headSince: 1, 'waiting.turnId': 1, 'waiting.acceptedAt': 1 } },
        )
        .hint('waiting_heads')
        .limit(limit)
        .toArray();
      return rows.flatMap(({ _id: key, headSince, waiting: [head] }) =>
        head
          ? [{ key, turnId: head.turnId, headSince, hintedAt: new Date(Math.max(+headSince, +head.acceptedAt)) }]
          : [],
      );
    },

    /** Claims the putting back of a head's job; of several sweepers one wins. */
    renewHeads: async (heads: StaleHead[]): Promise<void> => {
      if (heads.length === 0) return;
      await updateMany(
        connection,
        'conversations',
        heads.map(({ key, turnId, headSince }) => ({
          q: { _id: key, 'waiting.0.turnId': turnId, headSince },
          u: { $currentDate: { headSince: true } },
        })),
      );
    },

    /** An assistant's conversations, oldest change first (contract §4): how a receiver that was down catches up. */
    list: async (filter: {
      assistantId: string;
      /** One session's conversation, by its key. */
      key?: string;
      updatedAfter?: Date;
      after?: { updatedAt: Date; key: string };
      limit?: number;
    }): Promise<ConversationList> => {
      const { assistantId, key, updatedAfter, after, limit = LIST_MAX } = filter;
      const query: mongo.Filter<StoredConversation> = { assistantId, channel: { $ne: 'playground' } };
      if (updatedAfter) query.updatedAt = { $gt: updatedAfter };
      if (key !== undefined) query._id = key;
      if (after) {
        query.$or = [{ updatedAt: { $gt: after.updatedAt } }, { updatedAt: after.updatedAt, _id: { $gt: after.key } }];
      }
      const rows = await conversations
        .find(query, { projection: { ...WITHOUT_EVENTS, texts: 0, recent: 0, waiting: 0 } })
        .sort({ updatedAt: 1, _id: 1 })
        .limit(limit + 1)
        .toArray();
      const page = rows.slice(0, limit);
      const last = rows.length > limit ? page.at(-1) : undefined;
      return { conversations: page, next: last ? { updatedAt: last.updatedAt, key: last._id } : null };
    },
  };
};

export type ConversationStore = ReturnType<typeof createConversationStore>;
