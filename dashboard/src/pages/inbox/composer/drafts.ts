/** Drafts stay in this tab until they are sent, the conversation is erased, or the operator signs out. */
const PREFIX = 'parley-draft:';

export type Draft = {
  mode: 'reply' | 'note';
  text: string;
  /** The last number of the conversation when the writing began. Replies of others above it are a reason to look. */
  sinceSeq: number;
  /** Why the last try to send this text failed. */
  problem?: string;
};

const EMPTY: Draft = { mode: 'reply', text: '', sinceSeq: 0 };
const drafts = new Map<string, Draft>();
const listeners = new Set<() => void>();

const keyOf = (conversationId: string) => `${PREFIX}${conversationId}`;
const tellAll = (): void => {
  for (const listener of listeners) listener();
};

const readStored = (conversationId: string): Draft => {
  try {
    const stored = sessionStorage.getItem(keyOf(conversationId));
    return stored === null ? EMPTY : (JSON.parse(stored) as Draft); // only this file writes it
  } catch {
    return EMPTY; // storage is closed to this page
  }
};

export const subscribeToDrafts = (listener: () => void) => {
  listeners.add(listener);
  return () => void listeners.delete(listener);
};

/** Always the same object until the draft changes. */
export const readDraft = (conversationId: string): Draft => {
  const known = drafts.get(conversationId) ?? readStored(conversationId);
  drafts.set(conversationId, known);
  return known;
};

export const writeDraft = (conversationId: string, draft: Draft): void => {
  drafts.set(conversationId, draft);
  try {
    if (draft.text === '') sessionStorage.removeItem(keyOf(conversationId));
    else sessionStorage.setItem(keyOf(conversationId), JSON.stringify(draft));
  } catch {
    // The browser does not allow this page to use storage.
  }
  tellAll();
};

export const dropDraft = (conversationId: string): void => writeDraft(conversationId, EMPTY);

export const dropDrafts = (): void => {
  drafts.clear();
  try {
    for (const key of Object.keys(sessionStorage)) if (key.startsWith(PREFIX)) sessionStorage.removeItem(key);
  } catch {
    // The browser does not allow this page to use storage.
  }
  tellAll();
};
