import { useVirtualizer } from '@tanstack/react-virtual';
import { type RefObject, useDeferredValue, useEffect, useLayoutEffect, useRef } from 'react';
import type { InboxRow, Me } from '../../../types.ts';
import { Row } from './row.tsx';

const ROW_HEIGHT = 92;
const AHEAD = 15;

/** Keeps the rows on the screen where they are while others move above them. */
const useAnchor = (rows: InboxRow[], scroller: RefObject<HTMLDivElement | null>): void => {
  const before = useRef(rows);
  useLayoutEffect(() => {
    const former = before.current;
    before.current = rows;
    const box = scroller.current;
    if (!box || former === rows || box.scrollTop < ROW_HEIGHT) return;
    const top = Math.floor(box.scrollTop / ROW_HEIGHT);
    const anchor = former[top]?.conversationId;
    const now = rows.findIndex(({ conversationId }) => conversationId === anchor);
    if (now >= 0 && now !== top) box.scrollTop += (now - top) * ROW_HEIGHT;
  }, [rows, scroller]);
};

type Props = {
  rows: InboxRow[];
  me: Me;
  openId: string | null;
  linkTo: (conversationId: string) => string;
  /** The row that the keyboard moved to; it takes the focus. */
  cursor: { id: string } | null;
  onFocus: (conversationId: string) => void;
  /** `ready` is false while a page is loading, and after one failed. */
  more: { has: boolean; ready: boolean; load: () => void };
};

/** The rows of the inbox. Only those on the screen are in the page, however many are loaded. */
export const RowList = ({ rows: latest, me, openId, linkTo, cursor, onFocus, more }: Props) => {
  // What a person types is drawn before changes of the list.
  const rows = useDeferredValue(latest);
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 8,
  });
  useAnchor(rows, scroller);

  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (more.has && more.ready && last >= rows.length - AHEAD) more.load();
  }, [more, last, rows.length]);

  const at = rows.findIndex(({ conversationId }) => conversationId === cursor?.id);
  useEffect(() => {
    if (cursor === null || at < 0) return;
    virtual.scrollToIndex(at);
    const focus = () => scroller.current?.querySelector<HTMLElement>(`[data-conversation="${cursor.id}"]`)?.focus();
    const frame = requestAnimationFrame(focus);
    return () => cancelAnimationFrame(frame);
    // The row takes the focus when the keyboard moves, not when the list changes.
  }, [cursor]);

  const names = new Map(me.assistants.map(({ assistantId, name }) => [assistantId, name]));
  return (
    <div ref={scroller} className="inbox-rows" data-rows={rows.length}>
      <ul aria-label="Conversations" style={{ height: virtual.getTotalSize() }}>
        {items.map(({ index, start }) => {
          const row = rows[index];
          return (
            row && (
              <li
                key={row.conversationId}
                aria-setsize={more.has ? -1 : rows.length}
                aria-posinset={index + 1}
                style={{ top: start }}
              >
                <Row
                  row={row}
                  to={linkTo(row.conversationId)}
                  isOpen={row.conversationId === openId}
                  assistant={names.size > 1 ? (names.get(row.assistantId) ?? null) : null}
                  onFocus={onFocus}
                />
              </li>
            )
          );
        })}
      </ul>
    </div>
  );
};
