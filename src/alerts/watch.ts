import type { Connection } from 'mongoose';
import type { OutboxStore } from '../conversations/outbox.ts';
import type { ConversationStore } from '../conversations/store.ts';
import type { DeliveryQueue } from '../deliveries/queue.ts';
import type { Figures } from '../insights/figures.ts';
import { serverNow } from '../process/clock.ts';
import type { Config } from '../process/config.ts';
import { withDeadline } from '../process/deadline.ts';
import { newToken } from '../process/ids.ts';
import type { Lifecycle } from '../process/lifecycle.ts';
import type { Logger } from '../process/logger.ts';
import { startSweeper } from '../process/sweeper.ts';
import type { Timing } from '../process/time-limits.ts';
import { isCluster, type RedisClient } from '../redis/redis.ts';
import type { TurnQueue } from '../turns/queue.ts';
import type { EndpointStore } from '../webhooks/endpoint-store.ts';
import { openGuardedAgent } from '../webhooks/guarded-agent.ts';
import type { AlertChannel, AlertKind, AlertStore, Condition } from './alert.ts';
import { createNotify } from './notify.ts';

/** The most conditions of a kind that one round finds. */
const FOUND_MAX = 500;
/** From this share on, a store counts as full. */
const FULL = 0.9;
const FAILING_HOUR_MS = 3_600_000;
/** A provider fails if so many replies, and so large a share of them, had an error within an hour. */
const PROVIDER = { least: 3, share: 0.1 };
const RELEASE_MS = 500;
const CERTIFICATE_MS = 14 * 86_400_000;

/** Null if the store does not say how much it may use. */
type StoreRoom = { used: number; total: number } | null;

const numberIn = (text: string, name: string): number =>
  Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(text)?.[1] ?? 0);

/** The room of the fullest master of Redis, and of the disk of the MongoDB server. */
const readRoomOf = async (redis: RedisClient, mongo: Connection): Promise<{ redis: StoreRoom; disk: StoreRoom }> => {
  const masters = isCluster(redis) ? redis.nodes('master') : [redis];
  const infos = await Promise.all(masters.map((one) => one.info('memory')));
  const rooms = infos.map((info) => ({ used: numberIn(info, 'used_memory'), total: numberIn(info, 'maxmemory') }));
  const bounded = rooms.filter(({ total }) => total > 0);
  const [fullest = null] = bounded.toSorted((one, other) => other.used / other.total - one.used / one.total);
  const { fsUsedSize: used = 0, fsTotalSize: total = 0 } = (await mongo.db?.command({ dbStats: 1 })) ?? {};
  return { redis: fullest, disk: total > 0 ? { used, total } : null };
};

type Dependencies = {
  alerts: AlertStore;
  endpoints: Pick<EndpointStore, 'listUnhealthy' | 'listPausedIds'>;
  conversations: Pick<ConversationStore, 'isAnyoneWaiting'> & { outbox: Pick<OutboxStore, 'listLate'> };
  figures: Pick<Figures, 'listFailing'>;
  turnQueue: Pick<TurnQueue, 'oldestWaitingAt'>;
  deliveryQueue: Pick<DeliveryQueue, 'oldestWaitingAt'>;
  readRoom: () => Promise<{ redis: StoreRoom; disk: StoreRoom }>;
  channels: AlertChannel[];
  timing: Timing;
  logger: Logger;
};

/** What some kinds of alert look at. What it finds is complete, so alerts of these kinds that it does not find end. */
type Finder = { kinds: AlertKind[]; find: () => Promise<Condition[]> };

const ofService = (kind: AlertKind, target: string, details: Condition['details']): Condition => ({
  kind,
  target,
  assistantId: null,
  details,
});

/**
 * Looks at everything that alerts are about, and stores which conditions began or ended. Each finder reads an index that
 * has only what is wrong, so a round costs little however much is well. One that fails changes nothing of its kinds.
 */
const createWatch = (dependencies: Dependencies): (() => Promise<void>) => {
  const { alerts, endpoints, conversations, figures, turnQueue, deliveryQueue, readRoom, channels, timing, logger } =
    dependencies;

  const findEndpoints = async (): Promise<Condition[]> => {
    const now = serverNow();
    const failingSince = new Date(now - timing.alertEndpointFailingMs);
    const expiring = new Date(now + CERTIFICATE_MS);
    const unhealthy = await endpoints.listUnhealthy({ failingSince, expiring, limit: FOUND_MAX });
    return unhealthy.flatMap(({ _id: target, assistantId, url, pause, failing, certificateUntil }): Condition[] => {
      const one = { target, assistantId };
      const found: Condition[] = [];
      if (pause) {
        const { reason, until } = pause;
        found.push({ kind: 'endpoint_paused', ...one, details: { url, reason, until } });
      }
      if (failing && failing <= failingSince) {
        found.push({ kind: 'endpoint_failing', ...one, details: { url, since: failing } });
      }
      if (certificateUntil && certificateUntil <= expiring) {
        found.push({ kind: 'certificate_expires', ...one, details: { url, expiresAt: certificateUntil } });
      }
      return found;
    });
  };

  const findLate = async (): Promise<Condition[]> => {
    const paused = await endpoints.listPausedIds();
    const late = await conversations.outbox.listLate({
      olderThanMs: timing.alertEventsLateMs,
      exclude: paused,
      limit: FOUND_MAX,
    });
    return late.map(({ endpointId, assistantId, oldestAt }) => ({
      kind: 'events_late',
      target: endpointId,
      assistantId,
      details: { oldestAt },
    }));
  };

  /** These begin when a sweep reminds operators. Here they only go on. */
  const findWaiting = async (): Promise<Condition[]> => {
    const open = await alerts.listOpen('person_waits', FOUND_MAX);
    const waiting: Condition[] = [];
    for (const { target, assistantId, details } of open)
      if (await conversations.isAnyoneWaiting(target))
        waiting.push({ kind: 'person_waits', target, assistantId, details });
    return waiting;
  };

  const findProviders = async (): Promise<Condition[]> => {
    const hours = await figures.listFailing(new Date(serverNow() - FAILING_HOUR_MS), FOUND_MAX);
    const bad = hours.filter(
      ({ engineErrors, replies }) => engineErrors >= Math.max(PROVIDER.least, replies * PROVIDER.share),
    );
    return bad.map(({ assistantId, engineErrors, replies }) => ({
      kind: 'provider_failing',
      target: assistantId,
      assistantId,
      details: { failed: engineErrors, replies },
    }));
  };

  const findQueues = async (): Promise<Condition[]> => {
    const queues = { turns: turnQueue, deliveries: deliveryQueue };
    const stuck: Condition[] = [];
    for (const [name, queue] of Object.entries(queues)) {
      const at = await queue.oldestWaitingAt().catch(() => Number.NaN);
      if (Number.isNaN(at)) return [...stuck, ofService('redis_unavailable', 'redis', {})];
      if (at !== null && serverNow() - at > timing.alertQueueStuckMs)
        stuck.push(ofService('queue_stuck', name, { waitingSince: new Date(at) }));
    }
    return stuck;
  };

  const findSweeps = async (): Promise<Condition[]> => {
    const at = await alerts.lastSweepAt();
    const isOver = at !== null && serverNow() - at.getTime() > timing.alertSweepsStoppedMs;
    return isOver ? [ofService('sweeps_stopped', 'workers', { since: at })] : [];
  };

  const findRoom = async (): Promise<Condition[]> => {
    const { redis, disk } = await readRoom();
    const isFull = (room: StoreRoom): room is { used: number; total: number } =>
      room !== null && room.used > FULL * room.total;
    return [
      ...(isFull(redis) ? [ofService('redis_full', 'redis', { usedBytes: redis.used, maxBytes: redis.total })] : []),
      ...(isFull(disk) ? [ofService('disk_full', 'mongodb', { usedBytes: disk.used, totalBytes: disk.total })] : []),
    ];
  };

  const finders: Finder[] = [
    { kinds: ['endpoint_paused', 'endpoint_failing', 'certificate_expires'], find: findEndpoints },
    { kinds: ['events_late'], find: findLate },
    { kinds: ['person_waits'], find: findWaiting },
    { kinds: ['provider_failing'], find: findProviders },
    { kinds: ['queue_stuck', 'redis_unavailable'], find: findQueues },
    { kinds: ['sweeps_stopped'], find: findSweeps },
    { kinds: ['redis_full', 'disk_full'], find: findRoom },
  ];

  return async () => {
    const kinds: AlertKind[] = [];
    const conditions: Condition[] = [];
    for (const { kinds: own, find } of finders) {
      try {
        conditions.push(...(await find()));
        kinds.push(...own);
      } catch (cause) {
        logger.warn({ err: cause, kinds: own }, 'what alerts are about could not be read');
      }
    }
    const { began, ended } = await alerts.update(
      { kinds, conditions },
      { channels, endsAfterMs: timing.alertEndsAfterMs },
    );
    for (const { _id: alertId, kind, target, assistantId, details } of began)
      logger.warn({ alertId, kind, target, assistantId, details }, 'an alert began');
    for (const { _id: alertId, kind, target, assistantId } of ended)
      logger.info({ alertId, kind, target, assistantId }, 'an alert ended');
  };
};

type Opening = {
  service: Pick<Dependencies, 'endpoints' | 'turnQueue' | 'deliveryQueue'> & {
    redis: RedisClient;
    aside: Pick<Dependencies, 'alerts' | 'conversations'> & { insights: { figures: Figures }; mongo: Connection };
  };
  config: Config;
  logger: Logger;
  lifecycle: Lifecycle;
};

/**
 * Watches in this process, while no other one does, and tells what has changed. Every process may watch, so that the one
 * that is left tells that the others are gone.
 */
export const openAlerts = ({ service, config, logger, lifecycle }: Opening): void => {
  const { endpoints, turnQueue, deliveryQueue, redis, aside } = service;
  const { alerts, conversations, insights, mongo } = aside;
  const { timing, WEBHOOK_ALLOW_PRIVATE: allowPrivate } = config;
  const { draining } = lifecycle;
  const token = newToken();
  const dispatcher = openGuardedAgent({ allowPrivate, connections: 2 });
  lifecycle.add('connections of alerts', dispatcher, (agent) => agent.destroy());
  const notify = createNotify(alerts, { settings: config, dispatcher, everyMs: timing.alertEveryMs, logger });
  const watch = createWatch({
    alerts,
    endpoints,
    conversations,
    figures: insights.figures,
    turnQueue,
    deliveryQueue,
    readRoom: () => readRoomOf(redis, mongo),
    channels: notify.channels,
    timing,
    logger,
  });
  const round = async (): Promise<void> => {
    if (draining.aborted || !(await alerts.lead(token))) return;
    await watch();
    notify.tell(() => !draining.aborted);
  };
  const sweeper = startSweeper('alerts', round, { everyMs: timing.alertEveryMs, logger });
  lifecycle.add('alerts', sweeper, async ({ stop }) => {
    await stop();
    await notify.idle();
    // Without MongoDB the lease expires by itself.
    await withDeadline(alerts.release(token), RELEASE_MS).catch(() => undefined);
  });
};
