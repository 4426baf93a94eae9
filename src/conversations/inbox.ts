import type { Connection, mongo } from 'mongoose';
import { serverDate } from '../platform/process/clock.ts';
import { isUuid, prefixRange, type Uuid } from '../platform/process/ids.ts';
import { mapAtMost } from '../platform/process/slots.ts';
import { inChunks } from '../platform/mongo/batches.ts';
import { collectionOf, DURABLE, escapeRegExp, timeLimit } from '../platform/mongo/mongo.ts';
import {
  type ChannelName,
  conversationModels,
  type Message,
  type PendingTurn,
  type RecentTurn,
  type Status,
  type StoredConversation,
  updateOf,
} from './conversation.ts';
import { act, type Effect } from './state.ts';

type Query = mongo.Filter<StoredConversation>;

type Snoozed = Pick<StoredConversation, 'snoozedUntil' | 'snoozedAt'> & {
  waiting: Pick<PendingTurn, 'acceptedAt'>[];
  recent: Pick<RecentTurn, 'finishedAt'>[];
};

/**
 * The end of the snooze, or null if the conversation is not snoozed now. A visitor's message ends a snooze. This is
 * computed from the pending and finished turns, so that accepting a turn writes nothing more.
 */
export const snoozedUntilOf = ({ snoozedUntil, snoozedAt, waiting, recent }: Snoozed, now: Date): Date | null => {
  if (!snoozedUntil || !snoozedAt || snoozedUntil <= now) return null;
  const hasTurnSince =
    waiting.some(({ acceptedAt }) => acceptedAt > snoozedAt) || recent.some(({ finishedAt }) => finishedAt > snoozedAt);
  return hasTurnSince ? null : snoozedUntil;
};

const LAST_TURN = { $max: [{ $max: '$recent.finishedAt' }, { $max: '$waiting.acceptedAt' }] };

/** Filters by the same rule in MongoDB. */
const snoozedFilter = (snoozed: boolean, now: Date): Query =>
  snoozed
    ? { snoozedUntil: { $gt: now }, $expr: { $lte: [LAST_TURN, '$snoozedAt'] } }
    : { $or: [{ snoozedUntil: { $not: { $gt: now } } }, { $expr: { $gt: [LAST_TURN, '$snoozedAt'] } }] };

/** A row has at most this many code points of a text, from its beginning. */
export const SNIPPET_CODE_POINTS = 160;

const snippet = (text: string) => ({ $substrCP: [text, 0, SNIPPET_CODE_POINTS] });

const SAID = { $filter: { input: '$$this.v', as: 'one', cond: { $in: ['$$one.role', ['user', 'operator']] } } };
const TEXT_OF_NUMBER = {
  isSaid: { $eq: [{ $type: '$$said' }, 'object'] },
  seq: { $toLong: '$$this.k' },
  role: '$$message.role',
  content: snippet('$$message.content'),
  createdAt: '$$message.createdAt',
};
const MESSAGE = { $ifNull: ['$$said', { $last: '$$this.v' }] };
const SHORTENED = { $let: { vars: { message: MESSAGE }, in: TEXT_OF_NUMBER } };
const OF_NUMBER = { $let: { vars: { said: { $last: SAID } }, in: SHORTENED } };
/**
 * Of the messages in the document, the newest one of a visitor or an operator, else the newest one, with the beginning
 * of its text. `$max` compares the fields in their order.
 */
const SHOWN_TEXT = { $max: { $map: { input: { $objectToArray: '$texts' }, in: OF_NUMBER } } };

/** What a row has as it is stored. */
const ROW_NAMES = [
  'conversationId',
  'assistantId',
  'sessionId',
  'channel',
  'language',
  'status',
  'tags',
  'leadScore',
  'createdAt',
  'updatedAt',
  'escalatedAt',
  'escalationReason',
  'resolvedAt',
  'resolvedBy',
  'assigneeId',
  'waitingSince',
  'snoozedUntil',
  'snoozedAt',
  'takeBy',
  'remindedAt',
  'seq',
] as const;

/** A conversation as lists of operators need it: with shortened texts, and only the newest finished turn. */
export type ConversationRow = Pick<StoredConversation, '_id' | (typeof ROW_NAMES)[number]> & {
  recent: RecentTurn[];
  waiting: Pick<PendingTurn, 'seq' | 'acceptedAt' | 'message'>[];
  shownText: Pick<Message, 'role' | 'content' | 'createdAt'> | null;
};

/**
 * The fields of a row, without long texts: a document may hold a MiB of messages, and a list has a hundred documents.
 */
const ROW_FIELDS = {
  ...(Object.fromEntries(ROW_NAMES.map((name) => [name, 1])) as Record<(typeof ROW_NAMES)[number], 1>), // one for each name
  recent: { $slice: -1 },
  waiting: {
    $map: {
      input: '$waiting',
      in: { seq: '$$this.seq', acceptedAt: '$$this.acceptedAt', message: snippet('$$this.message') },
    },
  },
  shownText: SHOWN_TEXT,
} as const satisfies Record<Exclude<keyof ConversationRow, '_id'>, unknown>;

/** A search that takes longer than this is ended. The operator then has to search for less. */
const WITHIN_MS = 3_000;
/** A page may need many finds, one for each set of operators. All pages share a few connections. */
const FINDS_AT_ONCE = 2;

type AttributeFilter = { name: string; value: string | number | boolean };

/**
 * Whose conversations to list: those of some assistants. With `assignee`, only those assigned to this operator (`is`),
 * or to none of these (`notIn`).
 */
export type RowGroup = { assistantIds: string[]; assignee?: { is: string } | { notIn: string[] } };

/** Which conversations to list. */
export type RowFilter = {
  status?: Status;
  tag?: string;
  channel?: ChannelName;
  language?: string;
  snoozed?: boolean;
  /** The attribute has one of these values: an outside text may mean a string, a number or a boolean. */
  attribute?: AttributeFilter[];
  sessionId?: string;
  after?: { at: Date; id: string };
  /** Aborts when nobody waits for the list any more. */
  signal?: AbortSignal;
};

/**
 * What a search text may mean beside words: the id of a conversation or of one of its turns, or a part of a recent
 * session id.
 */
type SearchedRow = { prefixedId: Uuid } | { sessionPart: string; changedSince: Date };

export type RowPage = { conversations: ConversationRow[]; next: { at: Date; id: string } | null };

const optionsOf = ({ signal }: Pick<RowFilter, 'signal'>) => ({
  projection: ROW_FIELDS,
  ...timeLimit(WITHIN_MS),
  ...(signal && { signal }),
});

const searchedFilters = (searched: SearchedRow): Query[] => {
  if ('prefixedId' in searched) return [{ _id: prefixRange(searched.prefixedId) }];
  const { sessionPart, changedSince } = searched;
  return [{ updatedAt: { $gte: changedSince } }, { sessionId: { $regex: escapeRegExp(sessionPart), $options: 'i' } }];
};

const attributeFilter = (some: AttributeFilter[]): Query => ({
  'attributes.0': { $exists: true },
  $or: some.map(({ name, value }) => ({ attributes: { $elemMatch: { name, value } } })),
});

const conditionsOf = (filter: RowFilter): Query[] => {
  const { status, tag, channel, language, snoozed, attribute, sessionId, after } = filter;
  return [
    { channel: channel ?? { $ne: 'playground' } },
    ...(status ? [{ status }] : []),
    ...(tag === undefined ? [] : [{ 'tags.tag': tag, 'tags.0': { $exists: true } }]),
    ...(language === undefined ? [] : [{ language }]),
    ...(snoozed === undefined ? [] : [snoozedFilter(snoozed, serverDate())]),
    ...(attribute === undefined ? [] : [attributeFilter(attribute)]),
    ...(sessionId === undefined ? [] : [{ sessionId }]),
    ...(after
      ? [{ updatedAt: { $lte: after.at } }, { $or: [{ updatedAt: { $lt: after.at } }, { _id: { $lt: after.id } }] }]
      : []),
  ];
};

const assigneeFilters = ({ assignee }: RowGroup): Query[] =>
  assignee ? [{ assigneeId: 'is' in assignee ? assignee.is : { $nin: assignee.notIn } }] : [];

const queriesOf = (group: RowGroup): Query[] =>
  inChunks(group.assistantIds).map((some) => {
    const [only] = some;
    const assistantId = some.length === 1 && only !== undefined ? only : { $in: some };
    return { $and: [{ assistantId }, ...assigneeFilters(group)] };
  });

const newestFirst = (a: ConversationRow, b: ConversationRow): number =>
  b.updatedAt.getTime() - a.updatedAt.getTime() || (a._id < b._id ? 1 : -1);

const NO_PLAYGROUND: { $ne: ChannelName } = { $ne: 'playground' };

/**
 * Conversations as operators see them, and what operators set. Conversations of the playground are in no list. A change
 * that only operators see does not set `updatedAt`, because callers list their conversations by it.
 */
export type InboxStore = {
  /** Lists conversations of these groups, the latest change first. */
  list: (groups: RowGroup[], filter: RowFilter & { limit: number }, searched?: SearchedRow) => Promise<RowPage>;

  /** Finds which of these conversations are in one of the groups and match the filter. */
  findAmong: (keys: string[], groups: RowGroup[], filter: Omit<RowFilter, 'after'>) => Promise<ConversationRow[]>;

  /**
   * Reads the rows of those keys that belong to these assistants. MongoDB sends only what a row needs, because a
   * document may have a megabyte of texts. It sends batches of at most 16 MB, and only one of them is in memory.
   */
  readRows: (keys: string[], assistantIds: string[] | null) => AsyncIterable<ConversationRow>;

  /** Assigns the conversation to an operator. It then counts as taken. False if there is no such conversation. */
  assign: (conversationId: string, operatorId: string) => Promise<boolean>;

  /** Marks that the notes have changed, for live updates. False if there is no such conversation. */
  markNoted: (conversationId: string) => Promise<boolean>;

  /** Snoozes the conversation, or ends its snooze. Null if there is no such conversation. */
  snooze: (conversationId: string, snooze: { until: Date; at: Date } | null) => Promise<StoredConversation | null>;

  /** The number of the last final message. Null if there is no such conversation. */
  findLastSeq: (conversationId: string) => Promise<number | null>;

  /** Counts escalated conversations that are not snoozed, up to `limit`. */
  countWaiting: (assistantIds: string[], limit: number) => Promise<number>;

  /** Counts conversations that changed at or after `since`, by status. */
  countStatuses: (assistantId: string, since: Date) => Promise<Partial<Record<Status, number>>>;
};

export const createInboxStore = (connection: Connection): InboxStore => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  /** Null if there is no such conversation. */
  const change = async (conversationId: string, { changes }: Effect): Promise<StoredConversation | null> =>
    isUuid(conversationId)
      ? conversations.findOneAndUpdate(
          { _id: prefixRange(conversationId), conversationId, channel: NO_PLAYGROUND },
          updateOf(changes),
          { returnDocument: 'after', writeConcern: DURABLE, projection: { texts: 0, outbox: 0 } },
        )
      : null;

  return {
    list: async (groups, filter, searched) => {
      const shared = [...conditionsOf(filter), ...(searched ? searchedFilters(searched) : [])];
      const found = await mapAtMost(FINDS_AT_ONCE, groups.flatMap(queriesOf), (query) =>
        conversations
          .find<ConversationRow>({ $and: [query, ...shared] }, optionsOf(filter))
          .sort({ updatedAt: -1, _id: -1 })
          .limit(filter.limit + 1)
          .toArray(),
      );
      const rows = found.length === 1 ? (found[0] ?? []) : found.flat().toSorted(newestFirst);
      const page = rows.slice(0, filter.limit);
      const last = rows.length > filter.limit ? page.at(-1) : undefined;
      return { conversations: page, next: last ? { at: last.updatedAt, id: last._id } : null };
    },

    findAmong: (keys, groups, filter) => {
      const inGroup = groups.map(
        (group): Query => ({ $and: [{ assistantId: { $in: group.assistantIds } }, ...assigneeFilters(group)] }),
      );
      const query = { $and: [{ _id: { $in: keys } }, { $or: inGroup }, ...conditionsOf(filter)] };
      return conversations.find<ConversationRow>(query, optionsOf(filter)).toArray();
    },

    readRows: (keys, assistantIds) =>
      conversations.find<ConversationRow>(
        { _id: { $in: keys }, channel: NO_PLAYGROUND, ...(assistantIds && { assistantId: { $in: assistantIds } }) },
        { projection: ROW_FIELDS, batchSize: keys.length },
      ),

    assign: async (conversationId, operatorId) => (await change(conversationId, act.assign(operatorId))) !== null,

    markNoted: async (conversationId) => (await change(conversationId, act.note(serverDate()))) !== null,

    snooze: (conversationId, snooze) => change(conversationId, act.snooze(snooze)),

    findLastSeq: async (conversationId) => {
      if (!isUuid(conversationId)) return null;
      const filter = { _id: prefixRange(conversationId), conversationId };
      return (await conversations.findOne(filter, { projection: { seq: 1 } }))?.seq ?? null;
    },

    countWaiting: (assistantIds, limit) => {
      const $and = conditionsOf({ status: 'escalated', snoozed: false });
      const options = { limit, hint: 'inbox_filters', ...timeLimit(WITHIN_MS) };
      return conversations.countDocuments({ assistantId: { $in: assistantIds }, $and }, options);
    },

    countStatuses: async (assistantId, since) => {
      const $match = { assistantId, updatedAt: { $gte: since }, channel: NO_PLAYGROUND };
      const $group = { _id: '$status', count: { $sum: 1 } };
      const rows = await conversations
        .aggregate<{ _id: Status; count: number }>([{ $match }, { $group }], timeLimit(WITHIN_MS))
        .toArray();
      return Object.fromEntries(rows.map(({ _id, count }) => [_id, count]));
    },
  };
};
