import type { QueryClient } from '@tanstack/react-query';
import { SESSION } from '../../../query.ts';
import type { InboxRow, Me } from '../../../types.ts';
import { belongs, type RowFilter } from '../views.ts';
import { dropRow, type InboxPages, placeRows } from './place.ts';
import { findRow, openLists } from './rows.ts';

/** Puts changed rows into all open lists, or takes them out. */
export const putRows = (client: QueryClient, rows: readonly InboxRow[]): void => {
  const me = client.getQueryData<Me>([SESSION])?.operatorId ?? '';
  const changed = new Map(rows.map((row) => [row.conversationId, row]));
  const now = Date.now();
  for (const { queryKey, meta } of openLists(client)) {
    const filter = meta?.filter as RowFilter;
    client.setQueryData<InboxPages>(
      queryKey,
      (data) => data && placeRows(data, changed, (row) => belongs(row, filter, { me, now })),
    );
  }
};

export const changeRow = (client: QueryClient, conversationId: string, change: Partial<InboxRow>): void => {
  const row = findRow(client, conversationId);
  if (row) putRows(client, [{ ...row, ...change }]);
};

export const removeRow = (client: QueryClient, conversationId: string): void => {
  for (const { queryKey } of openLists(client)) {
    client.setQueryData<InboxPages>(queryKey, (data) => data && dropRow(data, conversationId));
  }
};
