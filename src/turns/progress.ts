import * as z from 'zod';

/** A part of a reply, published by a worker. The part follows the first `from` characters of the reply. */
export const Delta = z.object({
  turnId: z.string(),
  attempt: z.int().min(1),
  from: z.int().min(0),
  delta: z.string(),
});
export type Delta = z.infer<typeof Delta>;

/** The known beginning of a reply, and the attempt that wrote it. */
export type Progress = { attempt: number; text: string };

export const NOTHING_YET: Progress = { attempt: 1, text: '' };

/**
 * Adds a delta. A higher attempt starts from an empty text. A delta that is late, repeated or after a gap changes
 * nothing.
 */
export const advance = (known: Progress, { attempt, from, delta }: Delta): Progress => {
  if (attempt < known.attempt) return known;
  const text = attempt === known.attempt ? known.text : '';
  if (from > text.length || from + delta.length <= text.length) return known;
  return { attempt, text: text + delta.slice(text.length - from) };
};

/**
 * The progress with the whole reply, to be sent last. If the reply does not continue the text that was sent, because of
 * a fall-back or a handoff, the whole reply is sent under a new attempt (docs/contract.md, Streaming).
 */
export const complete = (sent: Progress, reply: string): Progress =>
  reply.startsWith(sent.text) ? { ...sent, text: reply } : { attempt: sent.attempt + 1, text: reply };
