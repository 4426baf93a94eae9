import { Status } from '../../parts/status.tsx';
import { timeOfDay, When } from '../../parts/when.tsx';
import type { Endpoint } from '../../types.ts';
import { ERASED, EVENT_NAMES, SENT } from './event-names.ts';

export const isPaused = ({ enabled, pause }: Endpoint): boolean =>
  enabled && pause !== null && (pause.until === null || Date.parse(pause.until) > Date.now());

export const EndpointState = ({ endpoint }: { endpoint: Endpoint }) => {
  if (!endpoint.enabled) return <Status tone="calm">Off</Status>;
  if (isPaused(endpoint)) {
    const { until } = endpoint.pause ?? {};
    return <Status tone="warn">{until ? `Paused until ${timeOfDay(until)}` : 'Paused'}</Status>;
  }
  if (endpoint.failingSince === null) return <Status tone="good">On</Status>;
  return (
    <Status tone="bad">
      <span>
        Failing since <When at={endpoint.failingSince} />
      </span>
    </Status>
  );
};

export const eventsOf = ({ events }: Endpoint): string => {
  if (events.length === 0) return 'Every event';
  const isEvery = EVENT_NAMES.every((name) => events.includes(name));
  const named = [SENT, ERASED].filter((name) => events.some((event) => event === name));
  return isEvery ? `Every event, and ${named.join(', ')}` : events.join(', ');
};
