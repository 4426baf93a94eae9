import { type QueryClient, useInfiniteQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { call, withQuery } from '../../../api.ts';
import { isProblem } from '../../../problem.ts';
import type { Inbox, InboxRow } from '../../../types.ts';
import type { RowFilter } from '../views.ts';

const LIST = '/inbox';
const PAGE = 50;

export const pathOf = ({ snoozed, ...filter }: RowFilter): string =>
  withQuery(LIST, { ...filter, ...(snoozed !== undefined && { snoozed: String(snoozed) }) });

/** Later pages may repeat a row that has moved up since. The first one counts. */
const unique = (rows: InboxRow[]): InboxRow[] => {
  const seen = new Set<string>();
  return rows.filter(({ conversationId }) => !seen.has(conversationId) && seen.add(conversationId));
};

/**
 * The rows of a list, loaded page by page. Live events keep them current, so they are not read again by themselves:
 * that would read every loaded page.
 */
export const useRows = (filter: RowFilter) => {
  const path = pathOf(filter);
  const query = useInfiniteQuery({
    queryKey: [path],
    queryFn: ({ pageParam, signal }) => call<Inbox>('GET', withPage(path, pageParam), { signal }),
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }) => nextCursor,
    meta: { filter },
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
    refetchOnWindowFocus: false,
    refetchOnReconnect: false,
    structuralSharing: false,
    retry: (count, problem) => count < 2 && !(isProblem(problem) && problem.status >= 400 && problem.status !== 503),
  });
  const rows = useMemo(() => unique(query.data?.pages.flatMap((page) => page.conversations) ?? []), [query.data]);
  return { ...query, rows };
};

const withPage = (path: string, cursor: string): string => {
  const page = new URLSearchParams({ limit: String(PAGE), ...(cursor !== '' && { cursor }) });
  return `${path}${path.includes('?') ? '&' : '?'}${page.toString()}`;
};

/** All lists that are open now, with their filters. */
export const openLists = (client: QueryClient) =>
  client.getQueryCache().findAll({
    predicate: ({ queryKey: [path], meta }) => String(path).startsWith(LIST) && meta?.filter !== undefined,
  });

/** The row of a conversation in an open list. */
export const findRow = (client: QueryClient, conversationId: string): InboxRow | undefined => {
  for (const { state } of openLists(client)) {
    const pages = (state.data as { pages: Inbox[] } | undefined)?.pages ?? [];
    for (const { conversations } of pages) {
      const row = conversations.find((one) => one.conversationId === conversationId);
      if (row) return row;
    }
  }
  return undefined;
};
