import type { StoredConversation } from '../conversations/conversation.ts';
import { numbersOf } from '../conversations/message-pages.ts';
import type { Assignees } from './assignees.ts';
import { snoozedUntilOf } from './snooze.ts';

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
