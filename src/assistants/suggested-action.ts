import * as z from 'zod';

const SUGGESTED_ACTION_TYPES = ['link', 'reply', 'escalate', 'phone', 'email'] as const;
export const MAX_SUGGESTED_ACTIONS = 5;

const MAX_PAYLOAD = 2048;
const CONTROL_OR_BACKSLASH = /[\p{Cc}\\]/u;

/**
 * True if a link may have this payload: an absolute http(s), mailto or tel URL, or a relative link that starts with
 * exactly one `/`, `#` or `?` (docs/contract.md, Suggested actions).
 */
export const isSafeLink = (payload: string): boolean => {
  // The length is checked again, because the schema calls this function even for a payload that is too long, and
  // parsing a long URL can take quadratic time.
  if (payload.length > MAX_PAYLOAD || CONTROL_OR_BACKSLASH.test(payload)) return false;
  if (/^([/#?])(?!\1)/.test(payload)) return true;
  return /^(https?:\/\/|mailto:|tel:)\S/i.test(payload) && URL.canParse(payload);
};

/** An action that a client may show as a button (docs/contract.md, Suggested actions). */
export const SuggestedAction = z
  .object({
    label: z.string().min(1).max(80),
    type: z.enum(SUGGESTED_ACTION_TYPES),
    payload: z.string().min(1).max(MAX_PAYLOAD),
  })
  .refine((action) => action.type !== 'link' || isSafeLink(action.payload), {
    path: ['payload'],
    message: 'is not an allowed link',
  })
  .meta({ id: 'SuggestedAction', description: 'A button that a client may show.' });
export type SuggestedAction = z.infer<typeof SuggestedAction>;

/** What a reply is taken from: a page or a file that the assistant has read. */
export const ReplySource = z
  .object({
    title: z.string().meta({ description: 'The title of the page, or the name of the file.' }),
    url: z.string().nullable().meta({ description: 'The page, with the anchor of the passage. Null for a file.' }),
    quote: z.string().meta({ description: 'The text that the reply is taken from.' }),
  })
  .meta({ id: 'ReplySource', description: 'What a reply is taken from.' });
export type ReplySource = z.infer<typeof ReplySource>;

/** What callers and endpoints get only if they ask for it. */
export const INCLUDED = ['sources'] as const;
export const IncludeQuery = z
  .enum(INCLUDED)
  .optional()
  .meta({ description: '`sources`: each reply of the assistant comes with `sources`, what it is taken from.' });
