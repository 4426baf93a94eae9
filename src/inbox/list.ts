import type { Connection, mongo } from 'mongoose';
import {
  type ChannelName,
  conversationModels,
  type Status,
  type StoredConversation,
} from '../conversations/conversation.ts';
import { serverDate } from '../platform/clock.ts';
import { isUuid, prefixRange } from '../platform/ids.ts';
import { collectionOf, timeLimit } from '../platform/mongo.ts';
import type { Assignees, ReadAssignees } from './assignees.ts';
import { ROW_FIELDS } from './row.ts';
import { snoozedFilter } from './snooze.ts';

/** A search that takes longer than this is ended. The operator then has to search for less. */
const WITHIN_MS = 3_000;
/** MongoDB merges at most 200 index ranges in order. With more ranges, it would sort all conversations. */
const ASSISTANTS_AT_ONCE = 100;

type AttributeFilter = { name: string; value: string | number | boolean };

export type InboxFilter = {
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
  /** A conversationId, or a part of a `session_id`. */
  search?: string;
  sessionId?: string;
  after?: { at: Date; id: string };
  limit: number;
};

/** Escapes the search text, so that no character in it acts as a pattern. */
const escapeRegExp = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');

type Query = mongo.Filter<StoredConversation>;

const searchFilter = (search: string): Query =>
  isUuid(search)
    ? { _id: prefixRange(search), conversationId: search }
    : { sessionId: { $regex: escapeRegExp(search), $options: 'i' } };

const attributeFilter = (some: AttributeFilter[]): Query => ({
  $or: some.map(({ name, value }) => ({ attributes: { $elemMatch: { name, value } } })),
});

const conditionsOf = (filter: InboxFilter): Query[] => {
  const { status, tag, channel, language, snoozed, attribute, search, sessionId, after } = filter;
  return [
    { channel: channel ?? { $ne: 'playground' } },
    ...(status ? [{ status }] : []),
    ...(tag === undefined ? [] : [{ 'tags.tag': tag }]),
    ...(language === undefined ? [] : [{ language }]),
    ...(snoozed === undefined ? [] : [snoozedFilter(snoozed, serverDate())]),
    ...(attribute === undefined ? [] : [attributeFilter(attribute)]),
    ...(search === undefined ? [] : [searchFilter(search)]),
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

const inChunks = ({ assistantIds, conditions }: Group): Query[] =>
  Array.from({ length: Math.ceil(assistantIds.length / ASSISTANTS_AT_ONCE) }, (_, nth) => {
    const some = assistantIds.slice(nth * ASSISTANTS_AT_ONCE, (nth + 1) * ASSISTANTS_AT_ONCE);
    const [only] = some;
    return { $and: [{ assistantId: some.length === 1 && only !== undefined ? only : { $in: some } }, ...conditions] };
  });

const newestFirst = (a: StoredConversation, b: StoredConversation): number =>
  b.updatedAt.getTime() - a.updatedAt.getTime() || (a._id < b._id ? 1 : -1);

export type InboxPage = { conversations: StoredConversation[]; next: { at: Date; id: string } | null };

/** Lists conversations of some assistants, the latest change first. Playground conversations are left out. */
export const createInboxList = (connection: Connection, readAssignees: ReadAssignees) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  return async (filter: InboxFilter): Promise<InboxPage> => {
    const assignees = filter.assignee === undefined ? null : await readAssignees();
    const shared = conditionsOf(filter);
    const found = await Promise.all(
      groupsOf(filter, assignees)
        .flatMap(inChunks)
        .map((query) =>
          conversations
            .find({ $and: [query, ...shared] }, { projection: ROW_FIELDS, ...timeLimit(WITHIN_MS) })
            .sort({ updatedAt: -1, _id: -1 })
            .limit(filter.limit + 1)
            .toArray(),
        ),
    );
    const rows = found.length === 1 ? (found[0] ?? []) : found.flat().toSorted(newestFirst);
    const page = rows.slice(0, filter.limit);
    const last = rows.length > filter.limit ? page.at(-1) : undefined;
    return { conversations: page, next: last ? { at: last.updatedAt, id: last._id } : null };
  };
};
