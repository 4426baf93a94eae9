import { useEffect, useRef, useState } from 'react';
import type { Me } from '../types.ts';
import { useLiveRows, useLiveStore } from './live.tsx';
import { showNotification } from './notification.ts';
import type { LiveRow } from './store.ts';

const REMEMBERED = 1_000;
/** Times of the response's header have whole seconds, and clocks differ a little. */
const TOLERANCE_MS = 3_000;

/** Why a row needs a person now, with the time that makes the reason new. */
const reasonOf = (row: LiveRow): { text: string; at: string } | null => {
  if (row.status !== 'escalated') return null;
  if (row.remindedAt !== null) return { text: 'Nobody has taken this conversation.', at: row.remindedAt };
  return row.escalatedAt === null ? null : { text: 'A conversation needs a person.', at: row.escalatedAt };
};

/** Keeps a number in front of the page's title, whatever title the page sets. */
const showCount = (count: number): (() => void) => {
  const prefix = count === 0 ? '' : `(${count}) `;
  const write = (): void => {
    const plain = document.title.replace(/^\(\d{1,6}\) /, '');
    if (document.title !== prefix + plain) document.title = prefix + plain;
  };
  write();
  const observer = new MutationObserver(write);
  const title = document.querySelector('title');
  if (title) observer.observe(title, { childList: true });
  return () => observer.disconnect();
};

const isLooking = (): boolean => !document.hidden && document.hasFocus();

/** Notifies of conversations that need a person, unless somebody else has them: on the desktop, and in the tab's title. */
export const Alerts = ({ me }: { me: Me }): null => {
  const store = useLiveStore();
  const known = useRef(new Set<string>());
  const [unseen, setUnseen] = useState(0);

  useLiveRows((rows) => {
    const since = (store.startedAt()?.getTime() ?? Date.now()) - TOLERANCE_MS;
    for (const row of rows) {
      const reason = reasonOf(row);
      if (!reason || new Date(reason.at).getTime() < since) continue;
      const key = `${row.conversationId} ${reason.at}`;
      if (known.current.has(key)) continue;
      known.current.add(key);
      const [oldest] = known.current;
      if (known.current.size > REMEMBERED && oldest !== undefined) known.current.delete(oldest);
      if (row.assigneeId !== null && row.assigneeId !== me.operatorId) continue;
      const name = me.assistants.find(({ assistantId }) => assistantId === row.assistantId)?.name;
      showNotification({ title: reason.text, body: name ?? '', conversationId: row.conversationId, tag: key });
      if (!isLooking()) setUnseen((count) => count + 1);
    }
  });

  useEffect(() => showCount(unseen), [unseen]);
  useEffect(() => {
    const look = (): void => {
      if (isLooking()) setUnseen(0);
    };
    addEventListener('focus', look);
    document.addEventListener('visibilitychange', look);
    return () => {
      removeEventListener('focus', look);
      document.removeEventListener('visibilitychange', look);
    };
  }, []);
  return null;
};
