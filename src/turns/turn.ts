import * as z from 'zod';
import { LanguageTag } from '../assistants/language-tag.ts';
import { MAX_SUGGESTED_ACTIONS, ReplySource, SuggestedAction } from '../assistants/suggested-action.ts';

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

/** The rules for a message as the API description tells them. Nothing is matched against this pattern here. */
const MESSAGE_PATTERN = '^[^\\u0000]*[^\\s\\u0000\\ufeff][^\\u0000]*$';

export const MessageText = wellFormed
  .refine(notBlank, 'must not be blank')
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
  })
  .meta({ id: 'ChatResponse' });
export type ChatResponse = z.infer<typeof ChatResponse>;
