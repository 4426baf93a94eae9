import type { InboxRow } from '../../types.ts';
import type { StatusName } from './words.ts';

/** What the list is asked for. The names are those of the API. */
export type RowFilter = {
  assistantId?: string;
  status?: StatusName;
  tag?: string;
  channel?: string;
  language?: string;
  /** `me`, `none` or an operator's id. */
  assignee?: string;
  snoozed?: boolean;
  search?: string;
};

type View = { id: string; label: string; filter: RowFilter; empty: string };

export const VIEWS: readonly View[] = [
  {
    id: 'person',
    label: 'Needs a person',
    filter: { status: 'escalated', snoozed: false },
    empty: 'Nobody is waiting',
  },
  { id: 'mine', label: 'Mine', filter: { assignee: 'me' }, empty: 'Nothing is assigned to you' },
  {
    id: 'unassigned',
    label: 'Unassigned',
    filter: { status: 'escalated', assignee: 'none', snoozed: false },
    empty: 'Every waiting visitor has somebody',
  },
  { id: 'open', label: 'Open', filter: { status: 'open', snoozed: false }, empty: 'No open conversations' },
  { id: 'resolved', label: 'Resolved', filter: { status: 'resolved' }, empty: 'No resolved conversations' },
  { id: 'snoozed', label: 'Snoozed', filter: { snoozed: true }, empty: 'Nothing is snoozed' },
  { id: 'all', label: 'All', filter: {}, empty: 'No conversations yet' },
];
const [FIRST] = VIEWS as [View];

/** The filters that a person adds to a view, as named in the page's address. */
export const FILTERS = ['assistant', 'status', 'tag', 'channel', 'language', 'assignee'] as const;
export const NAMES = ['view', ...FILTERS, 'search'] as const;
export type Name = (typeof NAMES)[number];

export const viewOf = (id: string): View => VIEWS.find((one) => one.id === id) ?? FIRST;

/** A view decides some filters itself; the others come from the address. */
export const filterOf = (of: (name: Name) => string): RowFilter => {
  const given = (name: Name, key: keyof RowFilter = name as keyof RowFilter) =>
    of(name).trim() === '' ? {} : { [key]: of(name).trim() };
  return {
    ...given('assistant', 'assistantId'),
    ...given('status'),
    ...given('tag'),
    ...given('channel'),
    ...given('language'),
    ...given('assignee'),
    ...given('search'),
    ...viewOf(of('view')).filter,
  };
};

const fits = (wanted: unknown, value: unknown): boolean => wanted === undefined || wanted === value;

/** True if a row belongs to a list, as the API would decide. Null if only the API can know: a search reads messages. */
export const belongs = (row: InboxRow, filter: RowFilter, { me, now }: { me: string; now: number }): boolean | null => {
  const { assistantId, status, tag, channel, language, assignee, snoozed, search } = filter;
  const isSnoozed = row.snoozedUntil !== null && Date.parse(row.snoozedUntil) > now;
  const assigneeId = assignee === 'me' ? me : assignee === 'none' ? null : assignee;
  const does =
    fits(assistantId, row.assistantId) &&
    fits(status, row.status) &&
    fits(channel, row.channel) &&
    fits(language, row.language) &&
    fits(assigneeId, row.assigneeId) &&
    fits(snoozed, isSnoozed) &&
    (tag === undefined || row.tags.some((one) => one.tag === tag));
  return does && search !== undefined ? null : does;
};
