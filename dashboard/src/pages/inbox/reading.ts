import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef, useState, useSyncExternalStore } from 'react';
import { at, call } from '../../api.ts';
import { changeRow } from './list/change-rows.ts';
import { type Thread, threadKey } from './thread/thread.ts';

const subscribe = (listener: () => void) => {
  document.addEventListener('visibilitychange', listener);
  return () => document.removeEventListener('visibilitychange', listener);
};
const isVisible = (): boolean => document.visibilityState === 'visible';

/** Tells the API up to which message this operator has read, while the page is visible. */
export const useReadPosition = (thread: Thread | undefined): void => {
  const client = useQueryClient();
  const visible = useSyncExternalStore(subscribe, isVisible);
  const { conversationId, seq = 0, readSeq = null } = thread?.facts ?? {};
  useEffect(() => {
    if (conversationId === undefined || !visible || seq <= (readSeq ?? 0)) return;
    client.setQueryData<Thread>(
      threadKey(conversationId),
      (now) => now && { ...now, facts: { ...now.facts, readSeq: seq } },
    );
    changeRow(client, conversationId, { readSeq: seq });
    // If this fails, the conversation is unread again after the next load. That is all.
    void call('POST', at`/conversations/${conversationId}/read`, { body: { seq } }).catch(() => undefined);
  }, [client, conversationId, seq, readSeq, visible]);
};

/**
 * The number after which messages are new to this operator: where they stopped reading when they opened the
 * conversation, or when they last left the page. Null if nothing is new.
 */
export const useNewAfter = (thread: Thread | undefined): number | null => {
  const visible = useSyncExternalStore(subscribe, isVisible);
  const [after, setAfter] = useState<number | null>(null);
  const opened = useRef(false);
  const seq = thread?.facts.seq;
  const readSeq = thread?.facts.readSeq ?? null;
  if (!opened.current && seq !== undefined) {
    opened.current = true;
    if (readSeq !== null && readSeq < seq) setAfter(readSeq);
  }
  useEffect(() => {
    if (!visible && seq !== undefined) setAfter(seq);
  }, [visible, seq === undefined]);
  return after;
};
