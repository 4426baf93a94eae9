import type { QueryClient } from '@tanstack/react-query';
import { SESSION } from '../query.ts';
import type { InboxRow } from '../types.ts';
import { follow } from './connection.ts';

/** A row as live updates send it: the same for all operators, so without a read position. */
export type LiveRow = Omit<InboxRow, 'readSeq'>;
export type LiveState = 'connecting' | 'live' | 'reconnecting';
export type Present = { operatorId: string; email: string; state: 'reading' | 'writing' };

type Listener = {
  onRows?: (rows: LiveRow[], erased: string[]) => void;
  /** Changes may be missing: whatever is shown has to be read again. */
  onReset?: () => void;
};

/** Rows are handed over together, at most so often, so that a busy inbox leaves the browser time for typing. */
const HAND_OVER_MS = 100;

type PresenceEvent = { conversationId: string; operatorId: string; email: string; state: Present['state'] | 'gone' };

const readsConversation = (path: unknown, conversationId: string): boolean =>
  String(path).startsWith(`/conversations/${conversationId}`);

/** The live updates of this page. */
export const createLiveStore = (client: QueryClient) => {
  const listeners = new Set<Listener>();
  const watchers = new Set<() => void>();
  const present = new Map<string, readonly Present[]>();
  let state: LiveState = 'connecting';
  let startedAt: Date | null = null;
  let rows = new Map<string, LiveRow>();
  let erased = new Set<string>();
  let timer: ReturnType<typeof setTimeout> | undefined;

  const changed = (): void => {
    for (const watch of watchers) watch();
  };

  const handOver = (): void => {
    timer = undefined;
    const [some, gone] = [[...rows.values()], [...erased]];
    [rows, erased] = [new Map(), new Set()];
    for (const { onRows } of listeners) onRows?.(some, gone);
    const ids = [...some.map(({ conversationId }) => conversationId), ...gone];
    void client.invalidateQueries({
      predicate: ({ queryKey: [path] }) => ids.some((id) => readsConversation(path, id)),
    });
  };

  const reset = (): void => {
    for (const { onReset } of listeners) onReset?.();
    void client.invalidateQueries({ predicate: ({ queryKey: [path] }) => String(path).startsWith('/conversations/') });
  };

  const notePresence = ({ conversationId, operatorId, email, state: theirs }: PresenceEvent): void => {
    const others = (present.get(conversationId) ?? []).filter((one) => one.operatorId !== operatorId);
    const now = theirs === 'gone' ? others : [...others, { operatorId, email, state: theirs }];
    if (now.length === 0) present.delete(conversationId);
    else present.set(conversationId, now);
    changed();
  };

  const onEvent = (event: string, data: unknown): void => {
    if (event === 'reset') return reset();
    if (event === 'presence') return notePresence(data as PresenceEvent); // the server sends this shape
    const { conversationId } = data as LiveRow;
    if (event === 'conversation') rows.set(conversationId, data as LiveRow);
    else if (event === 'erased') {
      rows.delete(conversationId);
      erased.add(conversationId);
    } else return;
    timer ??= setTimeout(handOver, HAND_OVER_MS);
  };

  return {
    /** Connects until the returned function is called. */
    start: (): (() => void) => {
      const over = new AbortController();
      const setState = (next: LiveState): void => {
        state = next;
        changed();
      };
      void follow(
        {
          onOpen: ({ resumed, at }) => {
            startedAt ??= at;
            present.clear(); // the server tells again who is present
            setState('live');
            if (!resumed) reset();
          },
          onEvent,
          onLost: () => setState(state === 'connecting' ? 'connecting' : 'reconnecting'),
          onSignedOut: () => client.setQueryData([SESSION], null),
        },
        over.signal,
      );
      return () => {
        over.abort();
        clearTimeout(timer);
        timer = undefined;
      };
    },

    listen: (listener: Listener): (() => void) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    watch: (watcher: () => void): (() => void) => {
      watchers.add(watcher);
      return () => void watchers.delete(watcher);
    },
    state: (): LiveState => state,
    /** The server's time when this page connected first. */
    startedAt: (): Date | null => startedAt,
    present: (conversationId: string): readonly Present[] | undefined => present.get(conversationId),
  };
};

export type LiveStore = ReturnType<typeof createLiveStore>;
