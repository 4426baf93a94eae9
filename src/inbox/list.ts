import type { Connection, mongo } from 'mongoose';
import {
  type ChannelName,
  conversationModels,
  type Status,
  type StoredConversation,
} from '../conversations/conversation.ts';
import { numbersOf } from '../conversations/message-pages.ts';
import type { FindByWords, FoundConversation } from '../insights/conversation-search.ts';
import { serverDate, serverNow } from '../process/clock.ts';
import { invalid } from '../process/errors.ts';
import { isUuid, prefixRange, type Uuid } from '../process/ids.ts';
import { inChunks } from '../mongo/batches.ts';
import { exceededTimeLimit } from '../mongo/failures.ts';
import { collectionOf, timeLimit } from '../mongo/mongo.ts';
import { mapAtMost } from '../process/slots.ts';
import type { Assignees, ReadAssignees } from './assignees.ts';

type Snoozed = Pick<StoredConversation, 'snoozedUntil' | 'snoozedAt' | 'waiting' | 'recent'>;

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

/** The same rule as a filter. */
const snoozedFilter = (snoozed: boolean, now: Date): mongo.Filter<StoredConversation> =>
  snoozed
    ? { snoozedUntil: { $gt: now }, $expr: { $lte: [LAST_TURN, '$snoozedAt'] } }
    : { $or: [{ snoozedUntil: { $not: { $gt: now } } }, { $expr: { $gt: [LAST_TURN, '$snoozedAt'] } }] };

const SNIPPET_CODE_POINTS = 160;

const snippet = (text: string) => ({ $substrCP: [text, 0, SNIPPET_CODE_POINTS] });
const numberOfKey = { $toLong: '$$this.k' };

/** Of the messages in the document, the newest one with the beginning of its text. */
const NEWEST_TEXT = {
  $let: {
    vars: { newest: { $max: { $map: { input: { $objectToArray: '$texts' }, in: numberOfKey } } } },
    in: {
      $arrayToObject: {
        $map: {
          input: { $filter: { input: { $objectToArray: '$texts' }, cond: { $eq: [numberOfKey, '$$newest'] } } },
          as: 'entry',
          in: {
            k: '$$entry.k',
            v: {
              $map: {
                input: { $slice: ['$$entry.v', -1] },
                in: { role: '$$this.role', content: snippet('$$this.content'), createdAt: '$$this.createdAt' },
              },
            },
          },
        },
      },
    },
  },
};

/**
 * The fields that a row is made of, and no long text: a document may hold a MiB of messages, and a list has a hundred
 * documents.
 */
export const ROW_FIELDS = {
  conversationId: 1,
  assistantId: 1,
  sessionId: 1,
  channel: 1,
  language: 1,
  status: 1,
  tags: 1,
  leadScore: 1,
  createdAt: 1,
  updatedAt: 1,
  escalatedAt: 1,
  escalationReason: 1,
  resolvedAt: 1,
  resolvedBy: 1,
  assigneeId: 1,
  waitingSince: 1,
  snoozedUntil: 1,
  snoozedAt: 1,
  takeBy: 1,
  remindedAt: 1,
  seq: 1,
  recent: { $slice: -1 },
  waiting: {
    $map: {
      input: '$waiting',
      in: { seq: '$$this.seq', acceptedAt: '$$this.acceptedAt', message: snippet('$$this.message') },
    },
  },
  texts: NEWEST_TEXT,
} as const;

/** The first 160 code points. A code point is at most two units, so the longest slice is bounded. */
const snippetOf = (content: string): string =>
  Array.from(content.slice(0, 2 * SNIPPET_CODE_POINTS))
    .slice(0, SNIPPET_CODE_POINTS)
    .join('');

/** The newest message: of the last pending turn, or of the last number. Null if there is none. */
const lastMessageOf = ({ waiting, texts }: StoredConversation) => {
  const pending = waiting.findLast(({ seq }) => seq === undefined);
  if (pending) {
    const { message, acceptedAt } = pending;
    return { role: 'user' as const, content: snippetOf(message), createdAt: acceptedAt, pending: true };
  }
  const message = texts[String(numbersOf(texts).at(-1))]?.at(-1);
  if (!message) return null;
  const { role, content, createdAt } = message;
  return { role, content: snippetOf(content), createdAt, pending: false };
};

/** The parts of a conversation that only operators see, in its row and beside its messages. */
export const handlingOf = (
  conversation: StoredConversation,
  { assignees, now }: { assignees: Assignees; now: Date },
) => ({
  assigneeId: assignees.find(conversation.assigneeId, conversation.assistantId)?.operatorId ?? null,
  waitingSince: conversation.waitingSince ?? null,
  snoozedUntil: snoozedUntilOf(conversation, now),
  takeBy: conversation.takeBy ?? null,
  remindedAt: conversation.remindedAt ?? null,
});

/** A conversation as one row of the inbox. */
export const toInboxRow = (
  conversation: StoredConversation,
  context: { assignees: Assignees; now: Date; readSeq: number | null },
) => ({
  conversationId: conversation.conversationId,
  assistantId: conversation.assistantId,
  sessionId: conversation.sessionId,
  channel: conversation.channel,
  language: conversation.language,
  status: conversation.status,
  tags: conversation.tags,
  leadScore: conversation.leadScore,
  createdAt: conversation.createdAt,
  updatedAt: conversation.updatedAt,
  escalatedAt: conversation.escalatedAt,
  escalationReason: conversation.escalationReason,
  ...handlingOf(conversation, context),
  seq: conversation.seq,
  readSeq: context.readSeq,
  last: lastMessageOf(conversation),
});

export type InboxRow = ReturnType<typeof toInboxRow>;

/** A search that takes longer than this is ended. The operator then has to search for less. */
const WITHIN_MS = 3_000;
/** A page may need many finds, one for each set of operators. They must not take all connections. */
const FINDS_AT_ONCE = 8;

/**
 * How many conversations a search finds at once. If the other filters leave too few of them, more are found. After the
 * last step, the page may be short, and the next page continues.
 */
const SEARCHED_AT_ONCE = [100, 400, 1_500];
/** The search knows every change that is older than this, unless it has much to catch up on. */
const RECENT_MS = 120_000;

type AttributeFilter = { name: string; value: string | number | boolean };

type InboxFilter = {
  assistantIds: string[];
  status?: Status;
  tag?: string;
  channel?: ChannelName;
  language?: string;
  /** An operator's id, or `none` for conversations that nobody has. */
  assignee?: string;
  snoozed?: boolean;
  /** The attribute has one of these values: an outside text may mean a string, a number or a boolean. */
  attribute?: AttributeFilter[];
  /** A conversationId, a part of a `session_id`, or words of the messages. */
  search?: string;
  sessionId?: string;
  after?: { at: Date; id: string };
  limit: number;
  /** Aborts when nobody waits for the list any more. */
  signal?: AbortSignal;
};

type SearchFilter = InboxFilter & { search: string };
type FoundRow = { row: StoredConversation; updatedAt: Date; conversationId: string };

/** Escapes the search text, so that no character in it acts as a pattern. */
const escapeRegExp = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');

type Query = mongo.Filter<StoredConversation>;

const optionsOf = ({ signal }: Pick<InboxFilter, 'signal'>) => ({
  projection: ROW_FIELDS,
  ...timeLimit(WITHIN_MS),
  ...(signal && { signal }),
});

const byId = (conversationId: Uuid): Query => ({ _id: prefixRange(conversationId), conversationId });
const bySession = (part: string): Query => ({ sessionId: { $regex: escapeRegExp(part), $options: 'i' } });

const attributeFilter = (some: AttributeFilter[]): Query => ({
  'attributes.0': { $exists: true },
  $or: some.map(({ name, value }) => ({ attributes: { $elemMatch: { name, value } } })),
});

const conditionsOf = (filter: InboxFilter): Query[] => {
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

type Group = { assistantIds: string[]; conditions: Query[] };

/**
 * Splits the assistants into groups with one filter each. The filter for an assignee depends on who may use the
 * assistant: somebody who may not use it any more counts as nobody.
 */
const groupsOf = ({ assistantIds, assignee }: InboxFilter, assignees: Assignees | null): Group[] => {
  if (assignee === undefined || !assignees) return [{ assistantIds, conditions: [] }];
  if (assignee !== 'none') {
    const own = assistantIds.filter((assistantId) => assignees.find(assignee, assistantId));
    return [{ assistantIds: own, conditions: [{ assigneeId: assignee }] }];
  }
  const idsOf = (assistantId: string) => assignees.of(assistantId).map(({ operatorId }) => operatorId);
  return [...Map.groupBy(assistantIds, (assistantId) => idsOf(assistantId).join())].map(([ids, some]) => ({
    assistantIds: some,
    conditions: [{ assigneeId: { $nin: ids.split(',') } }],
  }));
};

const queriesOf = ({ assistantIds, conditions }: Group): Query[] =>
  inChunks(assistantIds).map((some) => {
    const [only] = some;
    return { $and: [{ assistantId: some.length === 1 && only !== undefined ? only : { $in: some } }, ...conditions] };
  });

const newestFirst = (a: StoredConversation, b: StoredConversation): number =>
  b.updatedAt.getTime() - a.updatedAt.getTime() || (a._id < b._id ? 1 : -1);

type InboxPage = { conversations: StoredConversation[]; next: { at: Date; id: string } | null };

/** Lists conversations of some assistants, the latest change first. Playground conversations are left out. */
export const createInboxList = (connection: Connection, readAssignees: ReadAssignees, findByWords: FindByWords) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const listDirectly = async (filter: InboxFilter, more: Query[] = []): Promise<InboxPage> => {
    const assignees = filter.assignee === undefined ? null : await readAssignees();
    const shared = [...conditionsOf(filter), ...more];
    const queries = groupsOf(filter, assignees).flatMap(queriesOf);
    const found = await mapAtMost(FINDS_AT_ONCE, queries, (query) =>
      conversations
        .find({ $and: [query, ...shared] }, optionsOf(filter))
        .sort({ updatedAt: -1, _id: -1 })
        .limit(filter.limit + 1)
        .toArray(),
    );
    const rows = found.length === 1 ? (found[0] ?? []) : found.flat().toSorted(newestFirst);
    const page = rows.slice(0, filter.limit);
    const last = rows.length > filter.limit ? page.at(-1) : undefined;
    return { conversations: page, next: last ? { at: last.updatedAt, id: last._id } : null };
  };

  /** The found conversations that match the other filters, in the order of the search. */
  const readFound = async (
    { search: _search, after: _after, ...filter }: SearchFilter,
    found: FoundConversation[],
  ): Promise<FoundRow[]> => {
    const assignees = filter.assignee === undefined ? null : await readAssignees();
    const ids = new Map(found.map(({ conversationId, key }) => [key, conversationId]));
    const groups = groupsOf(filter, assignees).map(
      ({ assistantIds, conditions }): Query => ({
        $and: [{ assistantId: { $in: assistantIds } }, ...conditions],
      }),
    );
    const query = { $and: [{ _id: { $in: [...ids.keys()] } }, { $or: groups }, ...conditionsOf(filter)] };
    const rows = await conversations.find(query, optionsOf(filter)).toArray();
    const byKey = new Map(rows.map((row) => [row._id, row]));
    return found.flatMap(({ key, ...position }) => {
      const row = byKey.get(key);
      return row?.conversationId === position.conversationId ? [{ row, ...position }] : [];
    });
  };

  /** Conversations that changed just now, by their session id. The search may not know them yet. */
  const readRecent = async (filter: SearchFilter): Promise<FoundRow[]> => {
    const recent = { updatedAt: { $gte: new Date(serverNow() - RECENT_MS) } };
    const { conversations: latest } = await listDirectly(filter, [recent, bySession(filter.search)]);
    return latest.map((row) => ({ row, updatedAt: row.updatedAt, conversationId: row.conversationId }));
  };

  /**
   * Lists the conversations that a search finds. The position in this list is the time that the search knows, which can
   * be some seconds older than the conversation's time.
   */
  const listFound = async (filter: SearchFilter): Promise<InboxPage> => {
    const { assistantIds, search, limit, signal } = filter;
    let before = filter.after;
    const rows = new Map((await readRecent(filter)).map((one) => [one.conversationId, one]));
    const recent = rows.size;
    for (const size of SEARCHED_AT_ONCE) {
      const found = await findByWords(assistantIds, search, { before, limit: Math.max(size, limit + 1), signal });
      for (const one of await readFound(filter, found))
        if (!rows.has(one.conversationId)) rows.set(one.conversationId, one);
      const last = found.at(-1);
      before = last && found.length >= size ? { at: last.updatedAt, id: last.conversationId } : undefined;
      if (rows.size > limit + recent || before === undefined) break;
    }
    const all = [...rows.values()].toSorted((a, b) => b.updatedAt.getTime() - a.updatedAt.getTime());
    const page = all.slice(0, limit);
    const last = all.length > limit ? page.at(-1) : undefined;
    return {
      conversations: page.map(({ row }) => row),
      next: last ? { at: last.updatedAt, id: last.conversationId } : (before ?? null),
    };
  };

  const listSearched = async (filter: SearchFilter): Promise<InboxPage> => {
    const { search } = filter;
    const page = isUuid(search) ? await listDirectly(filter, [byId(search)]) : null;
    // A session id may be a uuid too.
    return page && page.conversations.length > 0 ? page : listFound(filter);
  };

  return async ({ search, ...filter }: InboxFilter): Promise<InboxPage> => {
    if (search === undefined) return listDirectly(filter);
    return listSearched({ ...filter, search }).catch((cause: unknown) => {
      if (!exceededTimeLimit(cause)) throw cause;
      throw invalid('search', 'too_slow', 'must be more specific: the search covers too much');
    });
  };
};
