import { Button, SegmentedControl } from '@mantine/core';
import { Link } from 'wouter';
import { at, call, withQuery } from '../api.ts';
import { useAddress } from '../parts/address.ts';
import { endpointNameOf } from '../parts/endpoint-name.ts';
import { wordsOf } from '../parts/field-words.ts';
import { Page, Section } from '../parts/page.tsx';
import { Pager } from '../parts/pager.tsx';
import { Empty, Shown } from '../parts/states.tsx';
import { Status } from '../parts/status.tsx';
import { dateAndTime, When } from '../parts/when.tsx';
import { useChange, useRead } from '../query.ts';
import type { Alert, AlertList, Me } from '../types.ts';

const REFRESH_MS = 10_000;
const STATES = [
  { value: 'open', label: 'Open' },
  { value: 'ended', label: 'Ended' },
];

const ENDPOINT_KINDS = new Set(['endpoint_failing', 'endpoint_paused', 'certificate_expires', 'events_late']);

/** Where the cause can be seen. */
const placeOf = ({ kind, assistantId, target }: Alert): string => {
  if (assistantId === null) return '/on-call';
  if (ENDPOINT_KINDS.has(kind)) return `/assistants/${assistantId}/webhooks/${target}`;
  if (kind === 'person_waits') return withQuery('/inbox', { view: 'person', assistant: assistantId });
  if (/^(?:quota|budget)_/.test(kind)) return `/assistants/${assistantId}/usage`;
  return `/assistants/${assistantId}/settings`;
};

const shown = (value: string | number): string => (typeof value === 'number' ? value.toLocaleString('en') : value);

const REASONS: Record<string, string> = { gone: 'it answered 410 Gone', retry_after: 'it asked for a pause' };

const detailsOf = ({ details: { url: _url, reason = null, ...details } }: Alert): string[] => [
  ...(reason === null ? [] : [REASONS[reason] ?? shown(reason)]),
  ...Object.entries(details).flatMap(([name, value]) => {
    if (value === null) return [];
    const isTime = /^\d{4}-\d\d-\d\dT/.test(String(value));
    return `${wordsOf(name)} ${isTime ? dateAndTime(String(value)) : shown(value)}`;
  }),
];

/** What the alert is about: an endpoint, or a queue or store of the service. An assistant is named beside it. */
const subjectOf = ({ assistantId, target, details: { url } }: Alert): string | null =>
  typeof url === 'string' ? endpointNameOf(url) : assistantId === null ? target : null;

export const AlertRow = ({ alert, name, onSeen }: { alert: Alert; name: string; onSeen?: () => void }) => {
  const { title, remedy, beganAt, endedAt, acknowledged } = alert;
  const subject = subjectOf(alert);
  return (
    <li className="row row-stack">
      <div className="row-main">
        <div className="row-title break">
          <Link to={placeOf(alert)}>{subject === null ? title : `${title}: ${subject}`}</Link>
        </div>
        <div className="row-sub break">{[name, ...detailsOf(alert)].join(' · ')}</div>
        {endedAt === null && <div className="row-sub break">{remedy}</div>}
      </div>
      <Status tone={endedAt === null ? 'bad' : 'calm'}>
        <span>
          {endedAt === null ? 'began' : 'ended'} <When at={endedAt ?? beganAt} />
        </span>
      </Status>
      {acknowledged !== null && <span className="dim">seen by {acknowledged.by}</span>}
      {onSeen && acknowledged === null && endedAt === null && (
        <Button size="xs" variant="default" onClick={onSeen}>
          I look after it
        </Button>
      )}
    </li>
  );
};

export const nameOf = (me: Me, { assistantId }: Alert): string =>
  assistantId === null
    ? 'The whole service'
    : (me.assistants.find((one) => one.assistantId === assistantId)?.name ?? 'An assistant');

const Alerts = ({ me }: { me: Me }) => {
  const { of, set } = useAddress(['state']);
  const state = of('state') === 'ended' ? 'ended' : 'open';
  const path = withQuery('/alerts', { state, cursor: of('cursor') });
  const read = useRead<AlertList>(path, { every: REFRESH_MS, keep: true });
  const acknowledge = useChange({
    run: (one: Alert) => call<Alert>('POST', at`/alerts/${one.alertId}/acknowledge`),
    invalidates: ['/alerts'],
  });
  return (
    <Page
      title="Alerts"
      description="What needs attention, from its beginning to its end. Kept for 90 days."
      actions={
        <SegmentedControl
          aria-label="State"
          size="xs"
          data={STATES}
          value={state}
          onChange={(value) => set('state', value)}
        />
      }
    >
      <Section flush>
        <Shown read={read} rows={4}>
          {({ alerts }) =>
            alerts.length === 0 ? (
              <Empty icon="bell" title={state === 'open' ? 'Nothing needs attention' : 'No alert has ended'} />
            ) : (
              <ul className="rows" aria-label="Alerts">
                {alerts.map((alert) => (
                  <AlertRow
                    key={alert.alertId}
                    alert={alert}
                    name={nameOf(me, alert)}
                    onSeen={() => acknowledge.mutate(alert)}
                  />
                ))}
              </ul>
            )
          }
        </Shown>
      </Section>
      <Pager cursor={of('cursor')} next={read.data?.nextCursor} onGo={(cursor) => set('cursor', cursor)} />
    </Page>
  );
};

export default Alerts;
