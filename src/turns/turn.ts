import * as z from 'zod';
import { LanguageTag } from '../assistants/knowledge/entry.ts';
import { MAX_SUGGESTED_ACTIONS, ReplySource, SuggestedAction } from '../assistants/suggested-action.ts';
import type { RecentTurn } from '../conversations/conversation.ts';
import type { ConversationStore, TurnConversation } from '../conversations/store.ts';
import { serverNow } from '../platform/process/clock.ts';
import { ApiError, notFound } from '../platform/process/errors.ts';
import type { TurnLeases } from './leases.ts';
import { type AnsweredReply, answeredWith, type Reply } from './waiters.ts';

export const SESSION_ID_MAX = 256;
export const MESSAGE_MAX = 8_000;

const codePoints = (value: string): number => {
  let count = 0;
  for (let index = 0; index < value.length; index += 1) {
    if ((value.charCodeAt(index) & 0xfc00) !== 0xdc00) count += 1;
  }
  return count;
};

const longest = (max: number) => (value: string) => value.length <= max || codePoints(value) <= max;

/**
 * A well-formed string. Every string from outside needs this check, because a lone surrogate cannot be stored or sent
 * exactly.
 */
const wellFormed = z.string().refine((value) => value.isWellFormed(), 'must be well-formed Unicode');

const notBlank = (value: string): boolean => value.trim() !== '';
/** Characters without width, marks without a letter, and the empty Braille pattern show nothing either. */
const SHOWN = /[^\s\p{Default_Ignorable_Code_Point}\p{Cc}\p{M}\u2800]/u;

/**
 * A session id. It is kept exactly, never trimmed or folded (docs/contract.md, Request). Its length is counted in code
 * points.
 */
export const SessionId = wellFormed
  .refine(notBlank, 'must not be blank')
  .refine(longest(SESSION_ID_MAX), `must be at most ${SESSION_ID_MAX} characters`)
  .refine((value) => !/\p{Cc}/u.test(value), 'must not contain control characters')
  .meta({
    description: 'Any stable string for each visitor. The same value is the same conversation.',
    minLength: 1,
    maxLength: SESSION_ID_MAX,
    pattern:
      '^[^\\u0000-\\u001f\\u007f-\\u009f]*[^\\s\\u0000-\\u001f\\u007f-\\u009f\\ufeff][^\\u0000-\\u001f\\u007f-\\u009f]*$',
    example: 'visitor-42',
  });

/** The rules for a message, for the API description only. Messages are not matched against this pattern. */
const MESSAGE_PATTERN =
  '^[^\\u0000]*[^\\s\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u2800\\u200b-\\u200f\\u2060-\\u206f\\ufe00-\\ufe0f\\ufeff][^\\u0000]*$';

export const MessageText = wellFormed
  .refine((value) => SHOWN.test(value), 'must not be blank')
  .refine(longest(MESSAGE_MAX), `must be at most ${MESSAGE_MAX} characters`)
  .refine((value) => !value.includes('\0'), 'must not contain NUL')
  .meta({ minLength: 1, maxLength: MESSAGE_MAX, pattern: MESSAGE_PATTERN });

/** The chat request (docs/contract.md, Request). Unknown fields are ignored. */
export const ChatRequest = z
  .object({
    session_id: SessionId,
    message: MessageText.meta({ description: "The visitor's text." }),
    language: LanguageTag.nullish().meta({
      description: 'BCP 47 tag of the message; detected when omitted.',
      example: 'en-GB',
    }),
  })
  .meta({ id: 'ChatRequest' });

/** An idempotency key: 1–255 visible ASCII characters. */
export const IdempotencyKey = z.string().regex(/^[\x21-\x7e]{1,255}$/, 'must be 1–255 visible ASCII characters');

export const ChatResponse = z
  .object({
    reply: z.string().meta({ description: "The assistant's answer." }),
    suggestedActions: z
      .array(SuggestedAction)
      .max(MAX_SUGGESTED_ACTIONS)
      .optional()
      .meta({ description: 'Buttons to show; omitted when there are none.' }),
    sources: z
      .array(ReplySource)
      .optional()
      .meta({ description: 'What the reply is taken from; only with `include=sources`.' }),
    conversationId: z.uuid().meta({ description: 'The same for the whole session.' }),
    messageId: z.uuid().meta({ description: "The assistant's message." }),
    mergedInto: z.uuid().optional().meta({
      description:
        'The later message of the visitor that was answered together with this one: its caller gets the same reply, so show it once.',
    }),
  })
  .meta({ id: 'ChatResponse' });
export type ChatResponse = z.infer<typeof ChatResponse>;

/** The stored answer of a finished turn. */
export const storedReplyOf =
  (conversations: ConversationStore) =>
  async (conversation: TurnConversation, turn: RecentTurn): Promise<Reply> => {
    const { replySeq: seq, replyMessageId: messageId, mergedInto } = turn;
    if (turn.outcome === 'failed' || seq === undefined || messageId === undefined) return { outcome: 'failed' };
    const message = await conversations.history.findMessage(conversation, { seq, messageId });
    if (!message) return { outcome: 'erased' };
    return { ...answeredWith(message), ...(mergedInto !== undefined && { mergedInto }) };
  };

/** `sources` only for a caller who asked for them (docs/contract.md, Sources of replies). */
const viewOf = (
  { outcome: _outcome, reply, sources = [], messageId, ...more }: AnsweredReply,
  { conversationId, withSources }: { conversationId: string; withSources: boolean },
): ChatResponse => ({ reply, ...more, ...(withSources && { sources }), conversationId, messageId });

export const toResponse = (reply: Reply, shown: { conversationId: string; withSources: boolean }): ChatResponse => {
  if (reply.outcome === 'erased') throw notFound();
  if (reply.outcome === 'failed') throw new ApiError('internal_error');
  return viewOf(reply, shown);
};

const KEPT_FOR_MS = 86_400_000;

const TURN_STATUSES = ['accepted', 'answering', 'answered', 'failed'] as const;

const turnId = z.uuid().meta({ description: 'For `GET /api/v1/turns/{id}`.' });

/** The response to a caller who does not wait (docs/contract.md, Answer later). */
export const AcceptedTurn = z
  .object({ conversationId: ChatResponse.shape.conversationId, turnId, status: z.literal('accepted') })
  .meta({ id: 'AcceptedTurn' });
export type AcceptedTurn = z.infer<typeof AcceptedTurn>;

/** A turn that callers can read for 24 hours. Contains the chat response once the turn is answered. */
export const TurnView = z
  .object({
    turnId,
    status: z.enum(TURN_STATUSES).meta({
      description:
        '`accepted`: pending. `answering`: a worker is making the reply. `failed`: an error of the service; sending the same ' +
        'message again resumes it.',
    }),
    ...ChatResponse.partial().required({ conversationId: true }).shape,
  })
  .meta({ id: 'Turn' });
export type TurnView = z.infer<typeof TurnView>;

type Dependencies = {
  conversations: Pick<ConversationStore, 'findTurn'>;
  leases: Pick<TurnLeases, 'findLeased'>;
  storedReply: (conversation: TurnConversation, turn: RecentTurn) => Promise<Reply>;
};

/**
 * Reads a turn. Throws the same 404 if the turn's id is malformed or unknown, if the turn is erased or too old, or if
 * it belongs to another assistant.
 */
export type ReadTurn = (id: string, options: { assistantId: string; withSources: boolean }) => Promise<TurnView>;

export const createReadTurn =
  ({ conversations, leases, storedReply }: Dependencies): ReadTurn =>
  async (id, { assistantId, withSources }) => {
    const found = await conversations.findTurn(id, assistantId);
    if (!found) throw notFound();
    const { conversationId, _id: key } = found.conversation;
    if (found.state === 'pending') {
      const turn = { key, turnId: id };
      // While Redis is unavailable, it is not known whether a worker is answering the turn, so the status stays
      // `accepted`.
      const leased = found.head && (await leases.findLeased([turn]).catch(() => new Set<string>())).has(id);
      return { turnId: id, conversationId, status: leased ? 'answering' : 'accepted' };
    }
    if (serverNow() - found.turn.finishedAt.getTime() > KEPT_FOR_MS) throw notFound();
    const reply = await storedReply(found.conversation, found.turn);
    if (reply.outcome === 'erased') throw notFound();
    if (reply.outcome === 'failed') return { turnId: id, conversationId, status: 'failed' };
    return { turnId: id, status: 'answered', ...viewOf(reply, { conversationId, withSources }) };
  };
