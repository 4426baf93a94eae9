import type { Connection, mongo } from 'mongoose';
import { serverDate, serverNow } from '../platform/process/clock.ts';
import { isUuid, prefixRange, type Uuid } from '../platform/process/ids.ts';
import type { Tracing } from '../platform/process/tracing.ts';
import { collectionOf, createReader, createUpdate, shareRead, timeLimit, updateMany } from '../platform/mongo/mongo.ts';
import { inChunks } from '../platform/mongo/batches.ts';
import type { OrUnavailable } from '../platform/mongo/silence.ts';
import { type Accept, createAccept, createResolveDuplicate } from './accept.ts';
import { type AnswerableConversation, type Commit, createCommit, createCompact } from './commit.ts';
import {
  conversationModels,
  CONVERSATIONS,
  type FieldsOf,
  type FindDelivered,
  IDENTITY,
  LONG_AT_ONCE,
  type PendingTurn,
  type RecentTurn,
  type ConversationState,
  type StoredConversation,
  type TurnRef,
  WITHOUT_CONTENTS,
} from './conversation.ts';
import { type AnnounceErased, createErasure, type EraseElsewhere, type Erasure } from './erasure.ts';
import { createChangeConversation, createTransitions, type TakeBy, type Transitions } from './transitions.ts';
import { type ChangedConversations, createChangedConversations } from './changed-since.ts';
import { createHistory, createMessagePages, type History } from './history.ts';
import { createInboxStore, type InboxStore } from './inbox.ts';
import { createAnnounce, createOutboxStore, type OutboxStore, type ReceiversOf, type Woken } from './outbox.ts';

const LIST_MAX = 100;

/**
 * The fields that a worker reads to answer. Messages and finished turns are left out, so that the cost of an answer
 * does not grow with the conversation.
 */
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
  waitingSince: 1,
  assigneeId: 1,
  seq: 1,
  storedTo: 1,
  waiting: 1,
} as const satisfies FieldsOf<AnswerableConversation>;

/** The conversation of a turn, without its texts. */
export type TurnConversation = Pick<StoredConversation, '_id' | keyof typeof IDENTITY>;

export type FoundTurn =
  | { state: 'pending'; conversation: TurnConversation; turn: PendingTurn; head: boolean }
  | { state: 'finished'; conversation: TurnConversation; turn: RecentTurn };

/** How many conversations with the same first 48 bits in their keys are read. Even two are rare. */
const SAME_PREFIX_MAX = 4;

/** The fields that identify a conversation, and only this one of its turns. */
const forTurn = (turnId: Uuid) => ({
  ...IDENTITY,
  waiting: { $elemMatch: { turnId } },
  recent: { $elemMatch: { turnId } },
  headId: { $first: '$waiting.turnId' },
});
type TurnCandidate = TurnConversation & Partial<Pick<StoredConversation, 'waiting' | 'recent'>> & { headId?: string };

type ConversationOwner = Pick<StoredConversation, 'assistantId' | 'channel' | 'sessionId'>;

export type NotTaken = Pick<StoredConversation, 'conversationId' | 'assistantId' | 'language'>;

/** The head of a session's pending turns, when a job for it was last added, and the size of the document. */
type StaleHead = TurnRef & { assistantId: string; headSince: Date; acceptedAt: Date; queuedAt: Date; bytes: number };
type FindHeads = { assistantId: string; from?: Date; except?: string[] };

type ConversationHead = Pick<StoredConversation, '_id' | 'conversationId' | 'seq'>;
/** The fields that tell a waiting visitor whether there is something new. */
type SessionHead = Pick<StoredConversation, '_id' | 'conversationId' | 'seq' | 'status'>;

export type ConversationList = { conversations: ConversationState[]; next: { at: Date; id: string } | null };

type Dependencies = {
  connection: Connection;
  /** Returns the endpoints that want an assistant's events. */
  receivers: (assistantId: string) => Promise<ReceiversOf>;
  wakeDeliveries: (conversation: Woken) => void;
  findDelivered: FindDelivered;
  eraseElsewhere: EraseElsewhere;
  announceErased: AnnounceErased;
  takeBy: TakeBy;
  orUnavailable: OrUnavailable;
  draining: AbortSignal;
  tracing: Tracing;
};

/** Reads and writes stored conversations. Large operations have files of their own. */
export type ConversationStore = Erasure & {
  history: History;
  outbox: OutboxStore;
  changed: ChangedConversations;
  inbox: InboxStore;
  accept: Accept;
  commit: Commit;
  transitions: Transitions;
  findTakeBy: TakeBy['findTakeBy'];

  /**
   * Finds a conversation by its id. The query uses the range of `_id` that belongs to the id's prefix, and then
   * compares the whole id. A malformed id gives null, like an unknown id.
   */
  findById: (conversationId: string, assistantId?: string) => Promise<StoredConversation | null>;

  /** The assistant, channel and session of a conversation, without its messages. A malformed id gives null. */
  findOwner: (conversationId: string) => Promise<ConversationOwner | null>;

  /**
   * A conversation without its texts, for a caller who waits or changes it. A malformed id gives null, like an unknown
   * id.
   */
  findHead: (conversationId: string, assistantId: string) => Promise<ConversationHead | null>;

  /** The conversation of a session, without its texts. Null if it has none. Reads are batched and shared. */
  findOfSession: (key: string, holder: string) => Promise<SessionHead | null>;

  /** The language of the last message, or null if there is no conversation. Reads are batched and shared. */
  findLanguage: (key: string, assistantId: string) => Promise<string | null>;

  /** The fields that an answer depends on, or null if there is no conversation. Reads are batched. */
  findForAnswer: (key: string) => Promise<AnswerableConversation | null>;

  /** The channels of the callers who wait for a pending turn. Reads are batched. */
  findReplyTo: (turn: TurnRef) => Promise<string[]>;

  /** True if the turn is pending. Reads are batched. */
  isPending: (turn: TurnRef) => Promise<boolean>;

  /** Finds heads whose job may be lost: of an assistant since `from`, or of the next ones. MongoDB's clock decides. */
  findStaleHeads: (of: FindHeads, olderThanMs: number, most: number) => Promise<StaleHead[]>;

  /**
   * Records that a job is being added for these heads: now, or as if at `againAt`. If several sweeps record this
   * concurrently, only one of them changes the document.
   */
  renewHeads: (heads: (StaleHead & { againAt?: Date })[]) => Promise<void>;

  /** Heads that were accepted before this time, however often a sweep has restored their job. */
  findHeadsAcceptedBefore: (at: Date, limit: number) => Promise<(TurnRef & { acceptedAt: Date })[]>;

  /** Finds a turn, pending or finished. Null if the turn's id is malformed, or the turn is unknown or erased. */
  findTurn: (turnId: string, assistantId?: string) => Promise<FoundTurn | null>;

  /**
   * Finds escalations past their take-by time: those of one assistant, oldest first. It is the first assistant with any
   * whose id is greater than `after`.
   */
  findNotTaken: (after: string, limit: number) => Promise<NotTaken[]>;

  /** True if a visitor of this assistant waits for a person, and operators were already reminded of this. */
  isAnyoneWaiting: (assistantId: string) => Promise<boolean>;

  /** Escalations of these assistants that are assigned to an operator and have no take-by time. */
  findAssigned: (to: { operatorId: string; assistantIds: string[] }, limit: number) => Promise<string[]>;

  /** The number of the last final message, or null if the conversation was erased. For long polls: it may rest. */
  findSeq: (conversation: { key: string; conversationId: string; assistantId: string }) => Promise<number | null>;

  /**
   * An assistant's conversations, oldest change first (docs/contract.md, List conversations). A receiver that was
   * down uses this list to catch up.
   */
  list: (filter: {
    assistantId: string;
    /** If set, only the conversation with this key is listed. */
    key?: string;
    updatedAfter?: Date;
    after?: { at: Date; id: string };
    limit?: number;
  }) => Promise<ConversationList>;
};

const WAITING_WITHIN_MS = 2_000;

/** From when the head can be answered, in MongoDB: as `waitsUntil`, or later. */
const ANSWERABLE_AT = {
  $let: {
    vars: { head: { $first: '$waiting' }, last: { $last: '$waiting' } },
    in: { $cond: ['$$head.quick', { $min: ['$$head.quick.atLatest', '$$last.quick.until'] }, '$$head.acceptedAt'] },
  },
};
const HEAD = {
  assistantId: 1,
  headSince: 1,
  waiting: { turnId: 1, acceptedAt: 1 },
  answerableAt: ANSWERABLE_AT,
  bytes: { $bsonSize: '$$ROOT' },
};
/** Heads may have a megabyte each, so few are read by one command. */
const HEADS = { hint: 'heads_by_assistant', batchSize: 50 };
const ASSIGNED = { hint: 'inbox_filters', batchSize: 50 };
type HeadRow = Pick<StoredConversation, '_id' | 'assistantId' | 'headSince' | 'waiting'> & {
  answerableAt: Date;
  bytes: number;
};

export const createConversationStore = (dependencies: Dependencies): ConversationStore => {
  const { connection, receivers, wakeDeliveries, findDelivered, eraseElsewhere, announceErased } = dependencies;
  const { takeBy, orUnavailable, draining, tracing } = dependencies;
  const { conversations: model, messages: messageModel } = conversationModels(connection);
  const conversations = collectionOf<StoredConversation>(model);
  const update = createUpdate(conversations);
  const pages = createMessagePages(connection);
  const history = createHistory(connection);
  const compact = createCompact({ connection, pages, findDelivered });
  const erasure = createErasure({ connection, pages, eraseElsewhere, announceErased, draining });
  const announce = createAnnounce({ receivers, wakeDeliveries });
  // If MongoDB is unavailable before anything is written, the caller of a new turn gets 503.
  const announceTurn = createAnnounce({ receivers: (id) => orUnavailable(receivers(id)), wakeDeliveries });

  /**
   * The conversations that an assistant's API key can see: all conversations of the assistant, except those of the
   * playground (docs/contract.md, Sending a message).
   */
  const visibleTo = (assistantId: string | undefined): mongo.Filter<StoredConversation> =>
    assistantId === undefined ? {} : { assistantId, channel: { $ne: 'playground' } };

  const finderOf =
    <Row extends object>(projection: mongo.Document) =>
    async (conversationId: string, assistantId?: string): Promise<Row | null> => {
      if (!isUuid(conversationId)) return null;
      const filter = { _id: prefixRange(conversationId), conversationId, ...visibleTo(assistantId) };
      return conversations.findOne<Row>(filter, { projection });
    };
  const findState = finderOf<ConversationState>(WITHOUT_CONTENTS);
  const few = { maxItems: 4 * LONG_AT_ONCE };
  const readLanguage = shareRead<StoredConversation>(createReader(conversations, { language: 1 }, few));
  const readForAnswer = createReader(conversations, FOR_ANSWER, few);
  const ofSession = { seq: 1, conversationId: 1, status: 1 };
  const readOfSession = shareRead<StoredConversation>(createReader(conversations, ofSession, few));
  // A look of a poll, or of one who has waited long, may wait and leaves MongoDB time for others.
  const unhurried = { ...few, maxInFlight: 1, rests: true };
  const readSeq = shareRead<StoredConversation>(createReader(conversations, { seq: 1, conversationId: 1 }, unhurried));
  const readPending = createReader(conversations, { 'waiting.turnId': 1 }, unhurried);
  const readReplyTo = createReader(conversations, { 'waiting.turnId': 1, 'waiting.replyTo': 1 });

  return {
    ...erasure,
    models: [model, messageModel, ...erasure.models],
    history,
    outbox: createOutboxStore(connection),
    changed: createChangedConversations(connection),
    inbox: createInboxStore(connection),
    accept: createAccept({
      connection,
      resolveDuplicate: createResolveDuplicate({ connection, update, findDelivered, history }),
      announce: announceTurn,
      tracing,
    }),
    commit: createCommit({ connection, pages, compact, announce, tracing }),
    transitions: createTransitions(
      createChangeConversation({ connection, update, pages, compact, announce, findState, ...takeBy }),
      takeBy.isTaken,
    ),
    findTakeBy: takeBy.findTakeBy,
    findById: finderOf<StoredConversation>({ outbox: 0 }), // only deliveries read it
    findOwner: finderOf<ConversationOwner>({ assistantId: 1, channel: 1, sessionId: 1 }),
    findHead: finderOf<ConversationHead>({ conversationId: 1, seq: 1 }),
    findOfSession: readOfSession,
    findLanguage: async (key, assistantId) => (await readLanguage(key, assistantId))?.language ?? null,
    findForAnswer: readForAnswer,
    findReplyTo: async ({ key, turnId }) =>
      (await readReplyTo(key))?.waiting.find((turn) => turn.turnId === turnId)?.replyTo ?? [],
    isPending: async ({ key, turnId }) =>
      (await readPending(key))?.waiting.some((turn) => turn.turnId === turnId) ?? false,

    findStaleHeads: async ({ assistantId, from, except = [] }, olderThanMs, limit) => {
      const older = (path: string | object) => ({ $lt: [path, { $subtract: ['$$NOW', olderThanMs] }] });
      const own = {
        'waiting.0': { $exists: true },
        assistantId: from ? assistantId : { $gt: assistantId, $nin: except },
        // The range makes MongoDB use the index. The exact comparison is the one with `$$NOW`.
        headSince: { ...(from && { $gte: from }), $lt: new Date(serverNow() - olderThanMs) },
        $expr: { $and: [older('$headSince'), older(ANSWERABLE_AT)] },
      };
      const options = { projection: HEAD, sort: { assistantId: 1, headSince: 1 }, ...HEADS } as const;
      const rows = await conversations.find<HeadRow>(own, options).limit(limit).toArray();
      return rows.flatMap(({ _id: key, answerableAt: at, waiting: [head], ...row }) => {
        return head ? [{ ...row, ...head, key, queuedAt: new Date(Math.max(+row.headSince, +at)) }] : [];
      });
    },

    renewHeads: async (heads) => {
      const updates = heads.map(({ key, turnId, headSince, againAt }) => ({
        q: { _id: key, 'waiting.0.turnId': turnId, headSince },
        u: againAt ? { $set: { headSince: againAt } } : { $currentDate: { headSince: true } },
      }));
      if (updates.length > 0) await updateMany(connection, CONVERSATIONS, updates);
    },

    findHeadsAcceptedBefore: async (at, limit) => {
      const rows = await conversations
        .find(
          {
            'waiting.0': { $exists: true },
            'waiting.0.acceptedAt': { $lt: at },
            'waiting.0.quick.atLatest': { $not: { $gte: at } },
          },
          { projection: { 'waiting.turnId': 1, 'waiting.acceptedAt': 1 }, ...HEADS, limit },
        )
        .toArray();
      return rows.flatMap(({ _id: key, waiting: [head] }) =>
        head ? [{ key, turnId: head.turnId, acceptedAt: head.acceptedAt }] : [],
      );
    },

    findTurn: async (turnId, assistantId) => {
      if (!isUuid(turnId)) return null;
      const own = { _id: prefixRange(turnId), ...visibleTo(assistantId) };
      const options = { projection: forTurn(turnId) };
      const candidates = await conversations.find<TurnCandidate>(own, options).limit(SAME_PREFIX_MAX).toArray();
      for (const { waiting: [pending] = [], recent: [recent] = [], headId, ...conversation } of candidates) {
        if (pending) return { state: 'pending', conversation, turn: pending, head: headId === turnId };
        const turn = recent ?? (await history.findFinishedTurn(conversation, turnId));
        if (turn) return { state: 'finished', conversation, turn };
      }
      return null;
    },

    findNotTaken: async (after, limit) => {
      const projection = { conversationId: 1, assistantId: 1, language: 1 };
      const options = { projection, sort: { assistantId: 1, takeBy: 1 }, hint: 'not_taken' } as const;
      const takeBy = { $exists: true, $lte: serverDate() };
      const due = (assistantId: string | { $gt: string }, most: number) =>
        conversations.find({ assistantId, takeBy }, { ...options, limit: most }).toArray();
      const [next] = await due({ $gt: after }, 1);
      return next ? due(next.assistantId, limit) : [];
    },

    isAnyoneWaiting: async (assistantId) => {
      const filter = { assistantId, status: 'escalated' as const, remindedAt: { $exists: true } };
      const options = { projection: { _id: 1 }, ...timeLimit(WAITING_WITHIN_MS) };
      return (await conversations.find(filter, options).hint('inbox_filters').limit(1).next()) !== null;
    },

    findAssigned: async ({ operatorId, assistantIds }, limit) => {
      // Only what the index has, so that each command reads few documents however many of them have a take-by time.
      const own = { status: 'escalated' as const, assigneeId: operatorId, channel: { $ne: 'playground' as const } };
      const options = { ...ASSIGNED, projection: { conversationId: 1, takeBy: 1, remindedAt: 1 } };
      const found: string[] = [];
      for (const some of inChunks(assistantIds)) {
        for await (const row of conversations.find({ ...own, assistantId: { $in: some } }, options)) {
          if (row.takeBy !== undefined || row.remindedAt !== undefined) continue;
          if (found.push(row.conversationId) === limit) return found;
        }
      }
      return found;
    },

    findSeq: async ({ key, conversationId, assistantId }) => {
      const row = await readSeq(key, assistantId);
      return row?.conversationId === conversationId ? row.seq : null;
    },

    list: async (filter) => {
      const { assistantId, key, updatedAfter, after, limit = LIST_MAX } = filter;
      const query: mongo.Filter<StoredConversation> = { assistantId, channel: { $ne: 'playground' } };
      if (updatedAfter) query.updatedAt = { $gt: updatedAfter };
      if (key !== undefined) query._id = key;
      if (after) {
        query.$or = [{ updatedAt: { $gt: after.at } }, { updatedAt: after.at, _id: { $gt: after.id } }];
      }
      const rows = await conversations
        .find(query, { projection: { ...WITHOUT_CONTENTS, attributes: 0 } })
        .sort({ updatedAt: 1, _id: 1 })
        .limit(limit + 1)
        .toArray();
      const page = rows.slice(0, limit);
      const last = rows.length > limit ? page.at(-1) : undefined;
      return { conversations: page, next: last ? { at: last.updatedAt, id: last._id } : null };
    },
  };
};
