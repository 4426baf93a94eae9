import { useQueryClient } from '@tanstack/react-query';
import { createContext, type ReactNode, useContext, useEffect, useRef, useState, useSyncExternalStore } from 'react';
import { at, call } from '../api.ts';
import { createLiveStore, type LiveRow, type LiveState, type LiveStore, type Present } from './store.ts';

const LiveContext = createContext<LiveStore | null>(null);

const NOBODY: readonly Present[] = [];
/** A presence expires after 15 seconds. */
const ANNOUNCE_EVERY_MS = 7_000;

export const useLiveStore = (): LiveStore => {
  const store = useContext(LiveContext);
  if (!store) throw new Error('this page is not inside <LiveUpdates>');
  return store;
};

/** Connects to the live updates while an operator is signed in. There is one connection for all pages. */
export const LiveUpdates = ({ children }: { children: ReactNode }) => {
  const client = useQueryClient();
  const [store] = useState(() => createLiveStore(client));
  useEffect(() => store.start(), [store]);
  return <LiveContext value={store}>{children}</LiveContext>;
};

export const useLiveState = (): LiveState => {
  const store = useLiveStore();
  return useSyncExternalStore(store.watch, store.state);
};

/**
 * Calls `onRows` with the conversations that changed and the ids of erased ones, at most ten times a second. `onReset`
 * means that changes may be missing, so that everything on the page must be read again.
 */
export const useLiveRows = (onRows: (rows: LiveRow[], erased: string[]) => void, onReset?: () => void): void => {
  const store = useLiveStore();
  const latest = useRef({ onRows, onReset });
  useEffect(() => {
    latest.current = { onRows, onReset };
  });
  useEffect(
    () =>
      store.listen({
        onRows: (rows, erased) => latest.current.onRows(rows, erased),
        onReset: () => latest.current.onReset?.(),
      }),
    [store],
  );
};

/** The other operators who read or write in a conversation now. */
export const usePresent = (conversationId: string): readonly Present[] => {
  const store = useLiveStore();
  return useSyncExternalStore(store.watch, () => store.present(conversationId) ?? NOBODY);
};

const announce = (conversationId: string, state: string): void => {
  // A presence that fails to arrive is sent again soon, or expires.
  call('POST', at`/conversations/${conversationId}/presence`, { body: { state } }).catch(() => undefined);
};

/** Tells other operators what this operator does in a conversation, until the page leaves it. Null: nothing. */
export const useAnnouncePresence = (conversationId: string | null, state: Present['state']): void => {
  useEffect(() => {
    if (conversationId === null) return undefined;
    const tell = (): void => {
      if (!document.hidden) announce(conversationId, state);
    };
    tell();
    const timer = setInterval(tell, ANNOUNCE_EVERY_MS);
    document.addEventListener('visibilitychange', tell);
    return () => {
      clearInterval(timer);
      document.removeEventListener('visibilitychange', tell);
    };
  }, [conversationId, state]);
  useEffect(() => {
    if (conversationId === null) return undefined;
    const leave = (): void => announce(conversationId, 'gone');
    addEventListener('pagehide', leave);
    return () => {
      removeEventListener('pagehide', leave);
      leave();
    };
  }, [conversationId]);
};
