import { type QueryClient, useQueryClient } from '@tanstack/react-query';
import { useLiveRows } from '../../../live/live.tsx';
import type { LiveRow } from '../../../live/store.ts';
import type { InboxRow } from '../../../types.ts';
import { forgetConversation } from '../erased.ts';
import { type Thread, threadKey } from '../thread/thread.ts';
import { putRows } from './change-rows.ts';
import type { Pages } from './place.ts';
import { findRow, openLists } from './rows.ts';

/** Live rows are the same for all operators, so the read position is the one that this page knows. */
const withReadSeq = (client: QueryClient, row: LiveRow): InboxRow => {
  const { conversationId } = row;
  const facts = client.getQueryData<Thread>(threadKey(conversationId))?.facts;
  return { ...row, readSeq: facts?.readSeq ?? findRow(client, conversationId)?.readSeq ?? null };
};

/** Reads each list again from its first page. Later pages are dropped, because reading all of them may take long. */
const restart = (client: QueryClient): void => {
  for (const { queryKey } of openLists(client)) {
    client.setQueryData<Pages>(
      queryKey,
      (data) => data && { pages: data.pages.slice(0, 1), pageParams: data.pageParams.slice(0, 1) },
    );
    void client.invalidateQueries({ queryKey, exact: true });
  }
};

/** Keeps the open lists current. The open conversation, if erased, is left to its pane, which says so. */
export const useLiveLists = (openId: string | null): void => {
  const client = useQueryClient();
  useLiveRows(
    (rows, erased) => {
      if (rows.length > 0)
        putRows(
          client,
          rows.map((row) => withReadSeq(client, row)),
        );
      for (const id of erased) if (id !== openId) forgetConversation(client, id);
    },
    () => restart(client),
  );
};
