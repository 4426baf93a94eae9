import * as z from 'zod';

/** A piece of a reply, as a worker publishes it. It follows the first `from` characters. */
export const Delta = z.object({
  turnId: z.string(),
  attempt: z.int().min(1),
  from: z.int().min(0),
  delta: z.string(),
});
export type Delta = z.infer<typeof Delta>;

/** The part of a reply that is known so far. */
export type Progress = { attempt: number; text: string };

export const NOTHING_YET: Progress = { attempt: 1, text: '' };

/**
 * Adds a delta. A higher attempt starts from nothing. A delta that is late, repeated or after a gap changes nothing.
 */
export const advance = (known: Progress, { attempt, from, delta }: Delta): Progress => {
  if (attempt < known.attempt) return known;
  const text = attempt === known.attempt ? known.text : '';
  if (from > text.length || from + delta.length <= text.length) return known;
  return { attempt, text: text + delta.slice(text.length - from) };
};

/**
 * The progress with which the deltas of the last attempt equal the reply. If a fall-back or a handoff replaced the
 * text, the whole reply is sent under a new attempt (docs/contract.md, Streaming).
 */
export const complete = (sent: Progress, reply: string): Progress =>
  reply.startsWith(sent.text) ? { ...sent, text: reply } : { attempt: sent.attempt + 1, text: reply };
