import { type QueryClient, useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef } from 'react';
import { useLiveRows } from '../../../live/live.tsx';
import type { LiveRow } from '../../../live/store.ts';
import type { InboxRow } from '../../../types.ts';
import { forgetConversation } from '../erased.ts';
import { type Thread, threadKey } from '../thread/thread.ts';
import { putRows } from './change-rows.ts';
import type { InboxPages } from './place.ts';
import { findRow, openLists } from './rows.ts';

const COLLECTED_MS = 300;

/** Live rows are the same for all operators, so the read position is the one that this page knows. */
const withReadSeq = (client: QueryClient, row: LiveRow): InboxRow => {
  const { conversationId } = row;
  const facts = client.getQueryData<Thread>(threadKey(conversationId))?.facts;
  return { ...row, readSeq: facts?.readSeq ?? findRow(client, conversationId)?.readSeq ?? null };
};

/** Reads each list again from its first page. Later pages are dropped, because reading all of them may take long. */
const restart = (client: QueryClient): void => {
  for (const { queryKey } of openLists(client)) {
    client.setQueryData<InboxPages>(
      queryKey,
      (data) => data && { pages: data.pages.slice(0, 1), pageParams: data.pageParams.slice(0, 1) },
    );
    void client.invalidateQueries({ queryKey, exact: true });
  }
};

/** Collects changed rows, so that a busy inbox changes its lists a few times a second only. */
const useCollected = (put: (rows: LiveRow[]) => void) => {
  const pending = useRef(new Map<string, LiveRow>());
  const timer = useRef<number | undefined>(undefined);
  useEffect(
    () => () => {
      window.clearTimeout(timer.current);
      timer.current = undefined;
    },
    [],
  );
  return (rows: LiveRow[], erased: string[]): void => {
    for (const id of erased) pending.current.delete(id);
    for (const row of rows) pending.current.set(row.conversationId, row);
    if (pending.current.size === 0) return;
    timer.current ??= window.setTimeout(() => {
      timer.current = undefined;
      put([...pending.current.values()]);
      pending.current.clear();
    }, COLLECTED_MS);
  };
};

/** Keeps the open lists current. The open conversation, if erased, is left to its pane, which says so. */
export const useLiveLists = (openId: string | null): void => {
  const client = useQueryClient();
  const collect = useCollected((rows) =>
    putRows(
      client,
      rows.map((row) => withReadSeq(client, row)),
    ),
  );
  useLiveRows(
    (rows, erased) => {
      collect(rows, erased);
      for (const id of erased) if (id !== openId) forgetConversation(client, id);
    },
    () => restart(client),
  );
};
