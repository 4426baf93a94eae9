import type { Connection } from 'mongoose';
import { serverNow } from '../platform/process/clock.ts';
import { withoutTokens } from '../platform/process/credentials.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { ApiError } from '../platform/process/errors.ts';
import { newToken } from '../platform/process/ids.ts';
import { mapAtMost } from '../platform/process/slots.ts';
import { startSweeper } from '../platform/process/sweeper.ts';
import { isCluster, type RedisClient } from '../platform/redis/redis.ts';
import type { Module } from '../service.ts';
import { NEAR, placeOf, type StoredAllowance } from '../turns/allowances.ts';
import { isPaused } from '../events/endpoints.ts';
import { openGuardedAgent } from '../platform/http/address-guard.ts';
import {
  type AlertChannel,
  type AlertKind,
  assistantsWithoutRoom,
  type Condition,
  LEADER_MS,
  type StoredAlert,
} from './alert.ts';
import { createNotify } from './notify.ts';
import { countHeard, QUEUES, workersOf } from './queue-state.ts';

/** How many conditions without an open alert one round finds at most, by kind. The next round finds others. */
const FOUND_MAX = 500;
/** How many targets of open alerts are read at once. */
const READ_AT_ONCE = 4;
/** A target that could not be read is left alone for so long. A slow one delays all alerts. */
const UNREAD_MS = 300_000;
/** After so many of these, a finder reads no more targets in this round. */
const UNREAD_MAX = 20;
/** From this share on, a store counts as full. */
const FULL = 0.9;
const FAILING_HOUR_MS = 3_600_000;
/** A provider fails if at least this many replies, and at least this share of them, had an error within an hour. */
const PROVIDER = { least: 3, share: 0.1 };
/** How long Redis has for an answer. A worker's command is repeated while its node is unavailable. */
const ASKED_WITHIN_MS = 2_000;
const RELEASE_MS = 500;
/** How long a stopping process waits for the channels. */
const TOLD_WITHIN_MS = 2_000;
const CERTIFICATE_TOLD_MS = 14 * 86_400_000;

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

/**
 * `open`: the open alerts of the finder's kinds. `full`: assistants that get no more alerts. `endpointsOfFull`: the
 * endpoints of these.
 */
type Known = { open: StoredAlert[]; full: string[]; endpointsOfFull: string[] };

/**
 * Finds the conditions of some kinds of alert. It checks the targets of all open alerts, so an open alert that it does
 * not find is over. Of conditions without an alert, it finds a bounded number.
 */
type Finder = { kinds: AlertKind[]; find: (known: Known) => Promise<Condition[]> };

const targetsOf = (alerts: StoredAlert[]): string[] => [...new Set(alerts.map(({ target }) => target))];

const ofService = (kind: AlertKind, target: string, details: Condition['details']): Condition => ({
  kind,
  target,
  assistantId: null,
  details,
});

/**
 * Looks at everything that alerts are about, and stores which conditions began or ended. Each finder reads an index
 * that has only what is wrong, and the targets of open alerts by their ids, so a round costs little unless much is
 * wrong. A finder that fails changes no alert of its kinds.
 */
const createWatch = ({ service, config, logger }: Module, channels: AlertChannel[]): (() => Promise<void>) => {
  const { timing } = config;
  const { endpoints, aside } = service;
  const { alerts, conversations, insights, allowances, assistants, workerSigns } = aside;
  const { figures } = insights;

  /** Open alerts whose target could not be read, and until when it is left alone. */
  const unread = new Map<string, number>();

  /** Alerts whose condition still holds, or may still hold because the target was not read. */
  const lasting = async (
    open: StoredAlert[],
    holds: (alert: StoredAlert) => Promise<boolean>,
  ): Promise<Condition[]> => {
    const failures: { err: unknown; kind: AlertKind; target: string }[] = [];
    const held = await mapAtMost(READ_AT_ONCE, open, async (alert) => {
      const { _id: alertId, kind, target } = alert;
      if (failures.length >= UNREAD_MAX || (unread.get(alertId) ?? 0) > performance.now()) return true;
      unread.delete(alertId);
      return holds(alert).catch((err: unknown) => {
        unread.set(alertId, performance.now() + UNREAD_MS);
        failures.push({ err, kind, target });
        return true;
      });
    });
    if (failures[0])
      logger.warn({ ...failures[0], count: failures.length }, 'what open alerts are about could not be read');
    return open.filter((_, nth) => held[nth]);
  };

  const findEndpoints = async ({ open, endpointsOfFull }: Known): Promise<Condition[]> => {
    const now = serverNow();
    const failingSince = new Date(now - timing.alertEndpointFailingMs);
    const expiring = new Date(now + CERTIFICATE_TOLD_MS);
    const known = targetsOf(open);
    const own = await mapAtMost(READ_AT_ONCE, known, endpoints.readForSending);
    const except = [...known, ...endpointsOfFull];
    const others = await endpoints.listUnhealthy({ failingSince, expiring, except, limit: FOUND_MAX });
    return [...own, ...others].flatMap((endpoint): Condition[] => {
      if (!endpoint?.enabled) return [];
      const { _id: target, assistantId, pause, failing, certificateUntil } = endpoint;
      const one = { target, assistantId };
      const url = withoutTokens(endpoint.url); // logged, mailed and posted
      const found: Condition[] = [];
      if (pause && isPaused(endpoint, now)) {
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

  const findLate = async ({ open, endpointsOfFull }: Known): Promise<Condition[]> => {
    const { outbox } = conversations;
    const olderThanMs = timing.alertEventsLateMs;
    const paused = await endpoints.listPausedIds();
    const isExcluded = new Set(paused);
    const exclude = [...paused, ...targetsOf(open), ...endpointsOfFull];
    const late = await outbox.listLate({ olderThanMs, exclude, limit: FOUND_MAX });
    const still = await lasting(
      open,
      async ({ target }) => !isExcluded.has(target) && outbox.isLate(target, olderThanMs),
    );
    const begins = late.map(({ endpointId: target, assistantId, oldestAt }) => {
      return { kind: 'events_late' as const, target, assistantId, details: { oldestAt } };
    });
    return [...still, ...begins];
  };

  /** A sweep that reminds operators begins these alerts. Here it is only checked whether they last. */
  const findWaiting = ({ open }: Known): Promise<Condition[]> =>
    lasting(open, ({ target }) => conversations.isAnyoneWaiting(target));

  const findProviders = async ({ open, full }: Known): Promise<Condition[]> => {
    const failing = { since: new Date(serverNow() - FAILING_HOUR_MS), ...PROVIDER };
    const known = targetsOf(open);
    const [still, begins] = await Promise.all([
      known.length === 0 ? [] : figures.listFailing({ ...failing, assistantId: { $in: known }, limit: known.length }),
      figures.listFailing({ ...failing, assistantId: { $nin: [...known, ...full] }, limit: FOUND_MAX }),
    ]);
    return [...still, ...begins].map(({ assistantId, engineErrors, replies }) => ({
      kind: 'provider_failing',
      target: assistantId,
      assistantId,
      details: { failed: engineErrors, replies },
    }));
  };

  /** The limit as it is set now, and the key's name. A null limit: there is none any more. */
  const limitOf = async ({
    kind,
    target,
    assistantId,
  }: StoredAllowance): Promise<{ limit: number | null; key?: string }> => {
    if (kind !== 'key') {
      const assistant = await assistants.findAssistant(assistantId);
      return { limit: (kind === 'tokens' ? assistant?.tokensPerDay : assistant?.turnsPerMonth) ?? null };
    }
    const key = await assistants.getApiKey(target).catch((cause: unknown) => {
      if (cause instanceof ApiError) return null; // it is gone
      throw cause;
    });
    return key?.revokedAt === null ? { limit: key.turnsPerMonth, key: key.name } : { limit: null };
  };

  /** Each round continues where the last one ended, because much of what a round reads may be no condition. */
  let nearAfter = '';

  const findUsedUp = async ({ open }: Known): Promise<Condition[]> => {
    const places = open.map(({ kind, target, assistantId }) => {
      const own = target === assistantId ? 'assistant' : 'key';
      const isBudget = kind === 'budget_near' || kind === 'budget_reached';
      return placeOf({ kind: isBudget ? 'tokens' : own, target, assistantId: assistantId ?? '' });
    });
    const { near, last } = await allowances.listNear(nearAfter, FOUND_MAX);
    nearAfter = last;
    const rows = [...(await allowances.findNear(places)), ...near];
    const found: Condition[] = [];
    for (const one of new Map(rows.map((row) => [row._id, row])).values()) {
      const { limit, key } = await limitOf(one);
      const { kind, target, assistantId, used, until } = one;
      if (limit === null) continue;
      // The level counts too: a call may be refused because it is larger than what is left, and a refund ends no alert.
      const level = one.limit === limit ? (one.level ?? 0) : 0;
      const isReached = used >= limit || level === 2;
      if (used < NEAR * limit && level === 0) continue;
      const is = { target, assistantId, details: { ...(key && { key }), used, limit, until } };
      const [near, reached] =
        kind === 'tokens' ? (['budget_near', 'budget_reached'] as const) : (['quota_near', 'quota_reached'] as const);
      found.push({ kind: near, ...is }, ...(isReached ? [{ kind: reached, ...is }] : []));
    }
    return found;
  };

  const findQueues = async (): Promise<Condition[]> => {
    const { alertQueueStuckMs, alertSourcesStuckMs } = timing;
    const stuck: Condition[] = [];
    for (const name of QUEUES) {
      const queue = service.queues[name];
      const longest = name === 'turns' || name === 'deliveries' ? alertQueueStuckMs : alertSourcesStuckMs;
      const at = await withDeadline(queue.oldestWaitingAt(), ASKED_WITHIN_MS).catch(() => Number.NaN);
      if (Number.isNaN(at)) return [...stuck, ofService('redis_unavailable', 'redis', {})];
      if (at === null || serverNow() - at <= longest) continue;
      const waiting = (await withDeadline(queue.countJobs(), ASKED_WITHIN_MS).catch(() => null))?.['waiting'] ?? null;
      const { heard: workers } = countHeard(workersOf(name, await workerSigns.listHeard()));
      stuck.push(ofService('queue_stuck', name, { waiting, waitingSince: new Date(at), workers }));
    }
    return stuck;
  };

  const findSilent = async (): Promise<Condition[]> => {
    const signs = await workerSigns.listHeard();
    return QUEUES.flatMap((name) => {
      const all = workersOf(name, signs);
      const { heard: workers, silent } = countHeard(all);
      if (silent === 0) return [];
      const lastHeard = new Date(Math.max(...all.filter((one) => one.silent).map(({ heardAt }) => heardAt.getTime())));
      return [ofService('worker_silent', name, { silent, workers, lastHeard })];
    });
  };

  const findSweeps = async (): Promise<Condition[]> => {
    const at = await alerts.lastSweepAt();
    const isOver = at !== null && serverNow() - at.getTime() > timing.alertSweepsStoppedMs;
    return isOver ? [ofService('sweeps_stopped', 'workers', { since: at })] : [];
  };

  const findRoom = async (): Promise<Condition[]> => {
    const { redis, disk } = await withDeadline(readRoomOf(service.redis, aside.mongo), ASKED_WITHIN_MS);
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
    { kinds: ['quota_near', 'quota_reached', 'budget_near', 'budget_reached'], find: findUsedUp },
    { kinds: ['queue_stuck', 'redis_unavailable'], find: findQueues },
    { kinds: ['worker_silent'], find: findSilent },
    { kinds: ['sweeps_stopped'], find: findSweeps },
    { kinds: ['redis_full', 'disk_full'], find: findRoom },
  ];

  return async () => {
    const kinds: AlertKind[] = [];
    const conditions: Condition[] = [];
    const open = await alerts.listOpen();
    const full = assistantsWithoutRoom(open);
    const endpointsOfFull = (await mapAtMost(READ_AT_ONCE, full, (id) => endpoints.listEndpointIds(id))).flat();
    for (const { kinds: own, find } of finders) {
      try {
        const known = { open: open.filter(({ kind }) => own.includes(kind)), full, endpointsOfFull };
        conditions.push(...(await find(known)));
        kinds.push(...own);
      } catch (cause) {
        logger.warn({ err: cause, kinds: own }, 'what alerts are about could not be read');
      }
    }
    const { began, ended } = await alerts.update(
      { open, kinds, conditions },
      { channels, endsAfterMs: timing.alertEndsAfterMs, returnsWithinMs: timing.alertReturnsWithinMs },
    );
    for (const { _id: alertId, kind, target, assistantId, details } of began)
      logger.warn({ alertId, kind, target, assistantId, details }, 'an alert began');
    for (const { _id: alertId, kind, target, assistantId } of ended)
      logger.info({ alertId, kind, target, assistantId }, 'an alert ended');
  };
};

/**
 * Watches conditions in this process, while no other process does, and tells the channels what has changed. Every
 * process can watch, so that the last one left tells that the others are gone.
 */
export const openAlerts = (module: Module): void => {
  const { service, config, logger, lifecycle } = module;
  const { alerts } = service.aside;
  const { timing, WEBHOOK_ALLOW_PRIVATE: allowPrivate } = config;
  const { draining } = lifecycle;
  const token = newToken();
  const dispatcher = openGuardedAgent({ allowPrivate, connections: 2 });
  lifecycle.add('connections of alerts', dispatcher, (agent) => agent.destroy());
  const notify = createNotify(alerts, { settings: config, dispatcher, timing, logger });
  const watch = createWatch(module, notify.channels);
  /** Until then no other process tells anything. */
  let leadsUntil = 0;
  const leads = (): boolean => performance.now() < leadsUntil;
  const lead = async (): Promise<boolean> => {
    const askedAt = performance.now();
    leadsUntil = (await alerts.lead(token)) ? askedAt + LEADER_MS : 0;
    return leads();
  };
  const round = async (): Promise<void> => {
    if (draining.aborted || !(await lead())) return;
    await watch();
    // A round may take longer than the lease lasts, and telling many alerts takes several rounds.
    if (leads() || (await lead())) notify.tell(() => leads() && !draining.aborted);
  };
  const sweeper = startSweeper('alerts', round, { everyMs: timing.alertEveryMs, logger });
  lifecycle.add('alerts', sweeper, async ({ stop }) => {
    await stop();
    // A channel that does not finish in time is cut off. The next process tells it the same again.
    await withDeadline(notify.idle(), TOLD_WITHIN_MS).catch(() => undefined);
    // Without MongoDB the lease expires by itself.
    await withDeadline(alerts.release(token), RELEASE_MS).catch(() => undefined);
  });
};
