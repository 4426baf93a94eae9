import { Badge, VisuallyHidden } from '@mantine/core';
import { useThrottledCallback } from '@mantine/hooks';
import { useQueryClient } from '@tanstack/react-query';
import { Link, useLocation } from 'wouter';
import { withQuery } from '../api.ts';
import { useLiveRows } from '../live/live.tsx';
import { Icon, type IconName } from '../parts/icon.tsx';
import { useRead } from '../query.ts';
import type { AlertList, Me, WaitingCount } from '../types.ts';

const REFRESH_MS = 30_000;
const WAITING = '/inbox/waiting';
/** A busy inbox is counted this often. */
const RECOUNT_MS = 2_000;
/** The API counts up to here. */
const COUNTED_MAX = 100;

type Entry = { label: string; to: string; icon: IconName; owners?: boolean; outside?: boolean };

const ofAssistant = (id: string): Entry[] => [
  { label: 'Overview', to: `/assistants/${id}/overview`, icon: 'home', owners: true },
  { label: 'Try it', to: `/assistants/${id}/try`, icon: 'chat' },
  { label: 'Knowledge', to: `/assistants/${id}/knowledge`, icon: 'book', owners: true },
  { label: 'Sources', to: `/assistants/${id}/sources`, icon: 'globe', owners: true },
  { label: 'Learn', to: `/assistants/${id}/learn`, icon: 'bulb', owners: true },
  { label: 'Evaluate', to: `/assistants/${id}/evaluate`, icon: 'check', owners: true },
  { label: 'Versions', to: `/assistants/${id}/versions`, icon: 'scroll', owners: true },
  { label: 'Web chat', to: `/assistants/${id}/web`, icon: 'screen', owners: true },
  { label: 'API keys', to: `/assistants/${id}/keys`, icon: 'key', owners: true },
  { label: 'Channel', to: `/assistants/${id}/channel`, icon: 'plug', owners: true },
  { label: 'Webhooks', to: `/assistants/${id}/webhooks`, icon: 'send', owners: true },
  { label: 'Deliveries', to: `/assistants/${id}/deliveries`, icon: 'list', owners: true },
  { label: 'Usage', to: `/assistants/${id}/usage`, icon: 'chart', owners: true },
  { label: 'Settings', to: `/assistants/${id}/settings`, icon: 'sliders', owners: true },
];

const INBOX: Entry = { label: 'Inbox', to: '/inbox', icon: 'inbox' };

const OF_SERVICE: Entry[] = [
  { label: 'Assistants', to: '/assistants', icon: 'bot', owners: true },
  { label: 'Operators', to: '/operators', icon: 'people', owners: true },
  { label: 'Alerts', to: '/alerts', icon: 'bell', owners: true },
  { label: 'On call', to: '/on-call', icon: 'clock', owners: true },
  { label: 'Audit trail', to: '/audit', icon: 'scroll', owners: true },
  { label: 'Queues', to: '/operator/queues', icon: 'layers', owners: true, outside: true },
  { label: 'API reference', to: '/docs', icon: 'book', owners: true, outside: true },
];

/** How many alerts are open. */
const OpenAlerts = () => {
  const open =
    useRead<AlertList>(withQuery('/alerts', { state: 'open', limit: '1' }), { every: REFRESH_MS }).data?.open ?? 0;
  return open === 0 ? null : (
    <Badge size="sm" color="red" variant="filled" className="num">
      {open}
      <VisuallyHidden> open</VisuallyHidden>
    </Badge>
  );
};

/** How many conversations need a person. */
const WaitingConversations = () => {
  const client = useQueryClient();
  const recount = useThrottledCallback(() => void client.invalidateQueries({ queryKey: [WAITING] }), RECOUNT_MS);
  useLiveRows(recount, recount);
  const count = useRead<WaitingCount>(WAITING, { every: REFRESH_MS }).data?.count ?? 0;
  return count === 0 ? null : (
    <Badge size="sm" variant="filled" className="num">
      {count < COUNTED_MAX ? count : `${COUNTED_MAX - 1}+`}
      <VisuallyHidden> to take</VisuallyHidden>
    </Badge>
  );
};

const NavLink = ({ entry: { label, to, icon, outside = false }, here }: { entry: Entry; here: boolean }) => {
  const content = (
    <>
      <Icon name={icon} />
      <span className="grow">{label}</span>
      {to === '/inbox' && <WaitingConversations />}
      {to === '/alerts' && <OpenAlerts />}
      {outside && <Icon name="external" size={14} />}
    </>
  );
  if (outside) {
    return (
      <a className="nav-link" href={to}>
        {content}
      </a>
    );
  }
  return (
    <Link className="nav-link" to={to} aria-current={here ? 'page' : undefined}>
      {content}
    </Link>
  );
};

const NavList = ({ title, entries }: { title: string | null; entries: Entry[] }) => {
  const [location] = useLocation();
  const isHere = ({ to }: Entry) => location === to || (to !== '/assistants' && location.startsWith(`${to}/`));
  if (entries.length === 0) return null;
  return (
    <div className="nav-list">
      {title !== null && (
        <div className="nav-title" id={`nav-${title}`}>
          {title}
        </div>
      )}
      <ul {...(title !== null && { 'aria-labelledby': `nav-${title}` })}>
        {entries.map((entry) => (
          <li key={entry.to}>
            <NavLink entry={entry} here={isHere(entry)} />
          </li>
        ))}
      </ul>
    </div>
  );
};

/** The groups of pages that this operator may open. */
export const navigationOf = (me: Me, assistantId: string | null): { title: string | null; entries: Entry[] }[] => {
  const allowed = (entries: Entry[]) => entries.filter(({ owners }) => me.role === 'owner' || !owners);
  return [
    { title: null, entries: [INBOX] },
    { title: 'Assistant', entries: assistantId === null ? [] : allowed(ofAssistant(assistantId)) },
    { title: 'Service', entries: allowed(OF_SERVICE) },
  ];
};

export const Navigation = ({ me, assistantId }: { me: Me; assistantId: string | null }) => (
  <div className="side-middle">
    {navigationOf(me, assistantId).map(({ title, entries }) => (
      <NavList key={title ?? 'first'} title={title} entries={entries} />
    ))}
  </div>
);
