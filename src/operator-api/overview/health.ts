import * as z from 'zod';
import type { DeliveryStore } from '../../deliveries/store.ts';
import type { DeliveryQueue } from '../../deliveries/queue.ts';
import type { StoredFigures } from '../../insights/figures.ts';
import { HOUR_MS } from '../../insights/figures.ts';
import { serverNow } from '../../platform/clock.ts';
import type { TurnQueue } from '../../turns/queue.ts';
import { type Endpoint, isPaused } from '../../webhooks/endpoint.ts';
import { time, uuid } from '../wire.ts';

const QUEUE_SLOW_MS = 10_000;
const CERTIFICATE_MS = 21 * 86_400_000;
/** An engine counts as failing if at least three replies and a tenth of all replies of the last hour or two failed. */
const FAILED_MIN = 3;
const FAILED_SHARE = 0.1;

const ofEndpoint = { endpointId: uuid, url: z.string() };

/** What needs somebody's attention. */
export const Ailment = z
  .discriminatedUnion('kind', [
    z.object({
      kind: z.literal('endpoint_paused'),
      ...ofEndpoint,
      reason: z.enum(['gone', 'retry_after']),
      until: time.nullable(),
    }),
    z.object({ kind: z.literal('certificate_expires'), ...ofEndpoint, expiresAt: time }),
    z.object({ kind: z.literal('queue_slow'), queue: z.enum(['turns', 'deliveries']), waitingSince: time }),
    z.object({ kind: z.literal('engine_failing'), failed: z.int(), replies: z.int() }),
  ])
  .meta({ id: 'Ailment' });
type Ailment = z.input<typeof Ailment>;

type Dependencies = { deliveries: DeliveryStore; turnQueue: TurnQueue; deliveryQueue: DeliveryQueue };

const findPaused = (endpoints: Endpoint[], now: number): Ailment[] =>
  endpoints.flatMap((one): Ailment[] =>
    one.enabled && one.pause && isPaused(one, now)
      ? [{ kind: 'endpoint_paused', endpointId: one.endpointId, url: one.url, ...one.pause }]
      : [],
  );

const findFailingEngine = (hours: StoredFigures[], now: number): Ailment[] => {
  const latest = hours.filter(({ hour }) => hour.getTime() > now - 2 * HOUR_MS);
  const sum = (of: (one: StoredFigures) => number): number => latest.reduce((total, one) => total + of(one), 0);
  const failed = sum(({ engineErrors = 0 }) => engineErrors);
  const replies = sum(
    ({ answered = 0, offered = 0, notAnswered = 0, other = 0 }) => answered + offered + notAnswered + other,
  );
  return failed >= FAILED_MIN && failed >= replies * FAILED_SHARE ? [{ kind: 'engine_failing', failed, replies }] : [];
};

/** Finds what is unhealthy, for one assistant and for the queues that all assistants share. */
export const createFindAilments = ({ deliveries, turnQueue, deliveryQueue }: Dependencies) => {
  const findSlow = async (queue: 'turns' | 'deliveries', since: Promise<number | null>): Promise<Ailment[]> => {
    const at = await since;
    return at !== null && serverNow() - at > QUEUE_SLOW_MS
      ? [{ kind: 'queue_slow', queue, waitingSince: new Date(at) }]
      : [];
  };

  const findExpiring = async (endpoint: Endpoint): Promise<Ailment[]> => {
    const { endpointId, url } = endpoint;
    const expiresAt = endpoint.enabled ? await deliveries.findCertificateExpiry(endpoint) : null;
    return expiresAt && expiresAt.getTime() < serverNow() + CERTIFICATE_MS
      ? [{ kind: 'certificate_expires', endpointId, url, expiresAt }]
      : [];
  };

  return async (endpoints: Endpoint[], hours: StoredFigures[]): Promise<Ailment[]> => {
    const now = serverNow();
    const found = await Promise.all([
      findSlow('turns', turnQueue.oldestWaitingAt()),
      findSlow('deliveries', deliveryQueue.oldestWaitingAt()),
      ...endpoints.map(findExpiring),
    ]);
    return [...findPaused(endpoints, now), ...findFailingEngine(hours, now), ...found.flat()];
  };
};
