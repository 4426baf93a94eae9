import { Button, Group } from '@mantine/core';
import { Value } from '../../parts/code.tsx';
import { Notice } from '../../parts/notice.tsx';
import { Facts, Section } from '../../parts/page.tsx';
import { dateAndTime, When } from '../../parts/when.tsx';
import type { Endpoint as EndpointType } from '../../types.ts';
import { EndpointState, eventsOf, isPaused } from './endpoint-state.tsx';

const PAUSES = {
  gone: 'Your server answered 410 Gone. Events wait, in order, until you resume the endpoint or they expire.',
  retry_after: 'Your server asked for time with Retry-After. Events wait, in order, and are sent after that time.',
};

export const Pause = ({ endpoint, onResume, busy }: { endpoint: EndpointType; onResume: () => void; busy: boolean }) =>
  isPaused(endpoint) && endpoint.pause ? (
    <Notice
      tone="warn"
      icon="pause"
      title="Paused"
      actions={
        <Button size="xs" onClick={onResume} loading={busy}>
          Resume now
        </Button>
      }
    >
      {PAUSES[endpoint.pause.reason]}
    </Notice>
  ) : null;

const hasOverlap = ({ overlapUntil }: EndpointType): boolean =>
  overlapUntil !== null && Date.parse(overlapUntil) > Date.now();

const headersOf = ({ headers }: EndpointType) => (
  <div className="mono">
    {headers.map(({ name, value }) => (
      <div key={name}>
        {name}: {value ?? '••••'}
      </div>
    ))}
  </div>
);

export const EndpointDetails = ({ endpoint, onRotate }: { endpoint: EndpointType; onRotate: () => void }) => (
  <Section>
    <Facts
      facts={{
        State: <EndpointState endpoint={endpoint} />,
        URL: <Value value={endpoint.url} label="URL" />,
        Events: eventsOf(endpoint),
        ...(endpoint.headers.length > 0 && { 'Own headers': headersOf(endpoint) }),
        'Signing secret': (
          <Group gap="sm">
            <span>
              {hasOverlap(endpoint) && endpoint.overlapUntil
                ? `Two in use: the old one until ${dateAndTime(endpoint.overlapUntil)}`
                : 'Shown only once, when it was created'}
            </span>
            <Button variant="default" size="compact-sm" onClick={onRotate}>
              Rotate secret…
            </Button>
          </Group>
        ),
        ...(endpoint.ratePerSecond !== null && { Rate: `At most ${endpoint.ratePerSecond} events a second` }),
        ...(endpoint.standardWebhooks && { Signatures: 'Standard Webhooks too' }),
        Added: <When at={endpoint.createdAt} exact />,
      }}
    />
  </Section>
);
