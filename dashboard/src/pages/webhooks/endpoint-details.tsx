import { Button, Group } from '@mantine/core';
import { Value } from '../../parts/code.tsx';
import { Notice } from '../../parts/notice.tsx';
import { Facts, Section } from '../../parts/page.tsx';
import { dateAndTime, When } from '../../parts/when.tsx';
import type { Endpoint as EndpointType } from '../../types.ts';
import { EndpointState, eventsOf, isPaused } from './endpoint-state.tsx';

const PAUSES = {
  gone: 'Your server answered 410 Gone. Its events wait, in order, until you resume it or they are too old.',
  retry_after: 'Your server asked for time. Its events wait, in order, and go on by themselves.',
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

export const Details = ({ endpoint, onRotate }: { endpoint: EndpointType; onRotate: () => void }) => (
  <Section>
    <Facts
      facts={{
        State: <EndpointState endpoint={endpoint} />,
        URL: <Value value={endpoint.url} label="URL" />,
        Events: eventsOf(endpoint),
        'Signing secret': (
          <Group gap="sm">
            <span>
              {hasOverlap(endpoint) && endpoint.overlapUntil
                ? `Two sign: the old one until ${dateAndTime(endpoint.overlapUntil)}`
                : 'Shown once, when it was made'}
            </span>
            <Button variant="default" size="compact-sm" onClick={onRotate}>
              Rotate secret…
            </Button>
          </Group>
        ),
        Added: <When at={endpoint.createdAt} exact />,
      }}
    />
  </Section>
);
