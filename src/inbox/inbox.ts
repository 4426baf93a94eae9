import type { Message, StoredConversation } from '../conversations/conversation.ts';
import {
  type ConversationRow,
  type RowFilter,
  type RowGroup,
  type RowPage,
  SNIPPET_CODE_POINTS,
  snoozedUntilOf,
} from '../conversations/inbox.ts';
import type { ConversationStore } from '../conversations/store.ts';
import type { FindByWords, FoundConversation } from '../insights/conversation-search.ts';
import { exceededTimeLimit } from '../platform/mongo/failures.ts';
import type { OperatorStore } from '../operators/store.ts';
import { serverDate, serverNow } from '../platform/process/clock.ts';
import { invalid, notFound } from '../platform/process/errors.ts';
import { isUuid } from '../platform/process/ids.ts';
import { type Assignees, createReadAssignees, type ReadAssignees } from './assignees.ts';
import type { InboxRecords } from './records.ts';

/** The first 160 code points. A code point is at most two units, so the longest slice is bounded. */
const snippetOf = (content: string): string =>
  Array.from(content.slice(0, 2 * SNIPPET_CODE_POINTS))
    .slice(0, SNIPPET_CODE_POINTS)
    .join('');

type LastMessage = Pick<Message, 'role' | 'content' | 'createdAt'> & { pending: boolean };

/**
 * The message that a row shows: what the visitor or an operator said last, because what the assistant or the service
 * says need not be read in a list. Without such a message among the newest, the newest one. Null if there is none.
 */
const lastMessageOf = ({ waiting, shownText }: ConversationRow): LastMessage | null => {
  const pending = waiting.findLast(({ seq }) => seq === undefined);
  if (pending) {
    const { message, acceptedAt } = pending;
    return { role: 'user', content: snippetOf(message), createdAt: acceptedAt, pending: true };
  }
  if (!shownText) return null;
  const { role, content, createdAt } = shownText;
  return { role, content: snippetOf(content), createdAt, pending: false };
};

/** The parts of a conversation that only operators see, in its row and beside its messages. */
type Handling = {
  /** The operator who has it. Null if its assignee may not use the assistant any more. */
  assigneeId: string | null;
  waitingSince: Date | null;
  snoozedUntil: Date | null;
  takeBy: Date | null;
  remindedAt: Date | null;
};

const handlingOf = (
  conversation: Omit<ConversationRow, 'shownText'>,
  { assignees, now }: { assignees: Assignees; now: Date },
): Handling => ({
  assigneeId: assignees.find(conversation.assigneeId, conversation.assistantId)?.operatorId ?? null,
  waitingSince: conversation.waitingSince ?? null,
  snoozedUntil: snoozedUntilOf(conversation, now),
  takeBy: conversation.takeBy ?? null,
  remindedAt: conversation.remindedAt ?? null,
});

/** A conversation as one row of the inbox. */
export type InboxRow = Pick<
  ConversationRow,
  | 'conversationId'
  | 'assistantId'
  | 'sessionId'
  | 'channel'
  | 'language'
  | 'status'
  | 'tags'
  | 'leadScore'
  | 'createdAt'
  | 'updatedAt'
  | 'escalatedAt'
  | 'escalationReason'
  | 'seq'
> &
  Handling & {
    /** How far the operator has read, or null. */
    readSeq: number | null;
    last: LastMessage | null;
  };

export const toInboxRow = (
  conversation: ConversationRow,
  context: { assignees: Assignees; now: Date; readSeq: number | null },
): InboxRow => ({
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

/**
 * How many conversations each step of a search finds. If too few of them pass the other filters, the next step follows.
 * After the last step, the page may be short, and the next page continues.
 */
const SEARCHED_AT_ONCE = [100, 400, 1_500];
/** The search knows every change that is older than this, unless it has much to catch up on. */
const RECENT_MS = 120_000;

type InboxFilter = RowFilter & {
  assistantIds: string[];
  /** An operator's id, or `none` for conversations that nobody has. */
  assignee?: string;
  /** The id of a conversation or of one of its turns, a part of a `session_id`, or words of the messages. */
  search?: string;
  limit: number;
};

type SearchFilter = InboxFilter & { search: string };
type FoundRow = { row: ConversationRow; updatedAt: Date; conversationId: string };

/**
 * Splits the assistants into groups with one assignee filter each. The filter for an assignee depends on who may use the
 * assistant: somebody who may not use it any more counts as nobody.
 */
const groupsOf = ({ assistantIds, assignee }: InboxFilter, assignees: Assignees | null): RowGroup[] => {
  if (assignee === undefined || !assignees) return [{ assistantIds }];
  if (assignee !== 'none') {
    const own = assistantIds.filter((assistantId) => assignees.find(assignee, assistantId));
    return [{ assistantIds: own, assignee: { is: assignee } }];
  }
  const idsOf = (assistantId: string) => assignees.of(assistantId).map(({ operatorId }) => operatorId);
  return [...Map.groupBy(assistantIds, (assistantId) => idsOf(assistantId).join())].map(([ids, some]) => ({
    assistantIds: some,
    assignee: { notIn: ids.split(',') },
  }));
};

/** Lists conversations of some assistants, the latest change first. */
type ListInbox = (filter: InboxFilter) => Promise<RowPage>;

export const createInboxList = (
  { inbox }: Pick<ConversationStore, 'inbox'>,
  readAssignees: ReadAssignees,
  findByWords: FindByWords,
): ListInbox => {
  const readGroups = async (filter: InboxFilter): Promise<RowGroup[]> =>
    groupsOf(filter, filter.assignee === undefined ? null : await readAssignees());

  /** The found conversations that match the other filters, in the order of the search. */
  const readFound = async (
    { search: _search, after: _after, ...filter }: SearchFilter,
    found: FoundConversation[],
  ): Promise<FoundRow[]> => {
    const keys = [...new Set(found.map(({ key }) => key))];
    const rows = await inbox.findAmong(keys, await readGroups(filter), filter);
    const byKey = new Map(rows.map((row) => [row._id, row]));
    return found.flatMap(({ key, ...position }) => {
      const row = byKey.get(key);
      return row?.conversationId === position.conversationId ? [{ row, ...position }] : [];
    });
  };

  /** Conversations that changed just now, by their session id. The search may not know them yet. */
  const readRecent = async (filter: SearchFilter): Promise<FoundRow[]> => {
    const recent = { sessionPart: filter.search, changedSince: new Date(serverNow() - RECENT_MS) };
    const { conversations: latest } = await inbox.list(await readGroups(filter), filter, recent);
    return latest.map((row) => ({ row, updatedAt: row.updatedAt, conversationId: row.conversationId }));
  };

  /**
   * Lists the conversations that a search finds, in the order of the times that the search knows. These times can be
   * some seconds older than the conversations' own times.
   */
  const listFound = async (filter: SearchFilter): Promise<RowPage> => {
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

  const listSearched = async (filter: SearchFilter): Promise<RowPage> => {
    const { search } = filter;
    const page = isUuid(search) ? await inbox.list(await readGroups(filter), filter, { prefixedId: search }) : null;
    // A session id may be a uuid too.
    return page && page.conversations.length > 0 ? page : listFound(filter);
  };

  const costliest = ({ search, attribute, tag }: Partial<SearchFilter>): string | null =>
    search !== undefined ? 'search' : attribute !== undefined ? 'attribute' : tag !== undefined ? 'tag' : null;

  return async ({ search, ...filter }) => {
    const listing =
      search === undefined ? inbox.list(await readGroups(filter), filter) : listSearched({ ...filter, search });
    return listing.catch((cause: unknown) => {
      const field = costliest({ ...filter, ...(search !== undefined && { search }) });
      if (!exceededTimeLimit(cause) || field === null) throw cause;
      throw invalid(field, 'too_slow', 'must be more specific: it covers too much');
    });
  };
};

/** Waiting conversations are counted up to here. */
export const COUNTED_MAX = 100;
const SNOOZE_MAX_MS = 366 * 86_400_000;

type Dependencies = {
  conversations: Pick<ConversationStore, 'inbox' | 'transitions'>;
  operators: Pick<OperatorStore, 'listOperators'>;
  records: Pick<InboxRecords, 'readPositions'>;
  findByWords: FindByWords;
};

/** The conversations as operators see and handle them. */
export type Inbox = {
  list: ListInbox;
  /** Counts conversations that need a person and are not snoozed, up to `COUNTED_MAX`. */
  countWaiting: (assistantIds: string[]) => Promise<number>;
  readAssignees: ReadAssignees;

  /** Assigns the conversation to an operator, or to nobody. An assigned conversation counts as taken. */
  assign: (
    conversation: Pick<StoredConversation, 'conversationId' | 'assistantId'>,
    operatorId: string | null,
  ) => Promise<void>;

  /** Marks that the notes have changed, for live updates. */
  markNoted: (conversationId: string) => Promise<void>;

  /** Hides the conversation until a time or until the visitor writes. Null ends the snooze. */
  snooze: (conversationId: string, until: Date | null) => Promise<Date | null>;

  /** Stores how far an operator has read, at most up to the last message. The position never goes back. */
  markRead: (conversationId: string, operatorId: string, seq: number) => Promise<number>;

  /** Turns conversations into rows. Without an operator, the rows have no read position. */
  toRows: (some: ConversationRow[], operatorId: string | null) => Promise<InboxRow[]>;

  /** What operators see beside the messages and notes of a conversation. */
  readDetails: (conversation: StoredConversation, operatorId: string) => Promise<Handling & Pick<InboxRow, 'readSeq'>>;
};

export const createInbox = ({ conversations, operators, records, findByWords }: Dependencies): Inbox => {
  const { inbox, transitions } = conversations;
  const readAssignees = createReadAssignees(operators);
  const { readPositions } = records;

  return {
    list: createInboxList(conversations, readAssignees, findByWords),
    countWaiting: (assistantIds) => inbox.countWaiting(assistantIds, COUNTED_MAX),
    readAssignees,

    assign: async ({ conversationId, assistantId }, operatorId) => {
      if (operatorId === null) {
        await transitions.unassign({ conversationId, assistantId });
        return;
      }
      const assignees = await readAssignees();
      if (!assignees.find(operatorId, assistantId))
        throw invalid('operatorId', 'unknown', 'must be an enabled operator who may use this assistant');
      if (!(await inbox.assign(conversationId, operatorId))) throw notFound();
    },

    markNoted: async (conversationId) => {
      if (!(await inbox.markNoted(conversationId))) throw notFound();
    },

    snooze: async (conversationId, until) => {
      const now = serverDate();
      if (until !== null && (until <= now || until.getTime() > now.getTime() + SNOOZE_MAX_MS))
        throw invalid('until', 'out_of_range', 'must be in the future, and within a year');
      const changed = await inbox.snooze(conversationId, until && { until, at: now });
      if (!changed) throw notFound();
      return snoozedUntilOf(changed, now);
    },

    markRead: async (conversationId, operatorId, seq) => {
      const last = await inbox.findLastSeq(conversationId);
      if (last === null) throw notFound();
      return readPositions.advance(conversationId, operatorId, Math.min(seq, last));
    },

    toRows: async (some, operatorId) => {
      const ids = some.map(({ conversationId }) => conversationId);
      const [assignees, positions] = await Promise.all([
        readAssignees(),
        operatorId === null ? new Map<string, number>() : readPositions.find(ids, operatorId),
      ]);
      const now = serverDate();
      return some.map((one) => toInboxRow(one, { assignees, now, readSeq: positions.get(one.conversationId) ?? null }));
    },

    readDetails: async (conversation, operatorId) => {
      const { conversationId } = conversation;
      const [assignees, positions] = await Promise.all([
        readAssignees(),
        readPositions.find([conversationId], operatorId),
      ]);
      return {
        ...handlingOf(conversation, { assignees, now: serverDate() }),
        readSeq: positions.get(conversationId) ?? null,
      };
    },
  };
};
