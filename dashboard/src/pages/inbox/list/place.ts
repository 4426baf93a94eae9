import type { InfiniteData } from '@tanstack/react-query';
import type { Inbox, InboxRow } from '../../../types.ts';

export type InboxPages = InfiniteData<Inbox, string>;
/** Where a changed row goes: into the list, out of it, or where it already stands, if only the API can know. */
type Belongs = (row: InboxRow) => boolean | null;

const isNewer = (one: InboxRow, other: InboxRow): boolean =>
  one.updatedAt === other.updatedAt ? one.conversationId > other.conversationId : one.updatedAt > other.updatedAt;

/** Puts a row at its place by latest change. Behind the last loaded row, a later page will bring it. */
const insert = (pages: Inbox[], row: InboxRow): Inbox[] => {
  for (const [index, page] of pages.entries()) {
    const isLast = index === pages.length - 1;
    const found = page.conversations.findIndex((one) => isNewer(row, one));
    if (found < 0 && !(isLast && page.nextCursor === null)) continue;
    const place = found < 0 ? page.conversations.length : found;
    return pages.with(index, { ...page, conversations: page.conversations.toSpliced(place, 0, row) });
  }
  return pages;
};

/** The list after some rows changed. Untouched pages and rows stay the same objects, so that they are not drawn again. */
export const placeRows = (data: InboxPages, changed: ReadonlyMap<string, InboxRow>, belongs: Belongs): InboxPages => {
  const known = new Map<string, InboxRow>();
  const isChanged = ({ conversationId }: InboxRow) => changed.has(conversationId);
  const without = data.pages.map((page) => {
    const mine = page.conversations.filter(isChanged);
    for (const row of mine) known.set(row.conversationId, row);
    return mine.length === 0 ? page : { ...page, conversations: page.conversations.filter((row) => !isChanged(row)) };
  });
  let pages = without;
  for (const row of changed.values()) {
    const before = known.get(row.conversationId);
    if (belongs(row) ?? before !== undefined) pages = insert(pages, row);
  }
  return pages === data.pages || (known.size === 0 && pages === without) ? data : { ...data, pages };
};

/** The list without erased conversations. */
export const dropRow = (data: InboxPages, conversationId: string): InboxPages =>
  placeRows(data, new Map([[conversationId, { conversationId } as InboxRow]]), () => false);
