import type { StoredConversation } from './conversation.ts';

/** More than a conversation has between two rounds of the projection, which counts them. */
const KEPT = 20;

type Resolved = Partial<Pick<StoredConversation, 'resolutions' | 'resolvedAt'>>;

/** The times of the last resolutions, oldest first. Release 0.1 stored only the last one, and forgot it at a reopening. */
export const resolutionsOf = ({ resolutions, resolvedAt }: Resolved): Date[] =>
  resolutions ?? (resolvedAt ? [resolvedAt] : []);

/** The resolutions with one more. Its time is later than the others, because the projection counts what is later. */
export const withResolution = (read: Resolved, now: Date): Date[] => {
  const before = resolutionsOf(read);
  const last = before.at(-1)?.getTime() ?? 0;
  return [...before, new Date(Math.max(now.getTime(), last + 1))].slice(-KEPT);
};
