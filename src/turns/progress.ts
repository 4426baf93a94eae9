import * as z from 'zod';

/** A piece of a reply in the making, as a worker publishes it: it belongs behind the first `from` characters. */
export const Delta = z.object({
  turnId: z.string(),
  attempt: z.int().min(1),
  from: z.int().min(0),
  delta: z.string(),
});
export type Delta = z.infer<typeof Delta>;

/** What is known of a reply in the making. */
export type Progress = { attempt: number; text: string };

export const NOTHING_YET: Progress = { attempt: 1, text: '' };

/** A higher attempt starts from nothing; what comes late, twice or after a gap changes nothing. */
export const advance = (known: Progress, { attempt, from, delta }: Delta): Progress => {
  if (attempt < known.attempt) return known;
  const text = attempt === known.attempt ? known.text : '';
  if (from > text.length || from + delta.length <= text.length) return known;
  return { attempt, text: text + delta.slice(text.length - from) };
};

/**
 * What is still to be said so that the deltas of the last attempt make up the reply: the rest of it, or, where a fall-back
 * or a handoff took the place of what was said, the whole under a new attempt (docs/contract.md, Streaming).
 */
export const complete = (sent: Progress, reply: string): Progress =>
  reply.startsWith(sent.text) ? { ...sent, text: reply } : { attempt: sent.attempt + 1, text: reply };
