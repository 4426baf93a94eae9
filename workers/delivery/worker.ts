import { BACKLOG_MAX } from '../../src/conversations/conversation.ts';
import { endpointsOf, type OutboxStore, pendingOf } from '../../src/conversations/outbox.ts';
import { DELIVERIES_QUEUE, type DeliveryQueue, WakeUpJob } from '../../src/deliveries/queue.ts';
import type { BreakerOptions } from '../../src/process/breaker.ts';
import type { Config } from '../../src/process/config.ts';
import type { Lifecycle } from '../../src/process/lifecycle.ts';
import type { Logger } from '../../src/process/logger.ts';
import { createMetrics } from '../../src/process/metrics.ts';
import { VERSION } from '../../src/process/process.ts';
import { createSlots, mapAtMost, type Occupancy } from '../../src/process/slots.ts';
import { countDeliveries, reportEventWaits } from '../../src/service-metrics.ts';
import { BACKGROUND_POOL_SIZE, openService } from '../../src/service.ts';
import { openQueueWorkers, openWorkerDuties } from '../../src/worker-process.ts';
import { createDeliver, type Deliver, type GivenReading, type OutboxReading } from './deliver.ts';
import { createDeliveryBreaker, createDispatch } from './dispatch.ts';
import { createSender, type SenderOptions } from './send.ts';

type Running = { key: string | null; wokenAt: number };

type Dependencies = {
  outbox: Pick<OutboxStore, 'read'>;
  deliver: Deliver;
  deliveryQueue: Pick<DeliveryQueue, 'wake'>;
  logger: Logger;
};

/** How many outboxes a job reads at once. Each may have hundreds of events. */
const OUTBOXES_AT_ONCE = 10;

/**
 * The delivery streams that this process is working on. Each stream runs only once at a time. A stream that is woken
 * after its last read began reads again before it stops. Two processes may work on the same stream, and the claim
 * decides which one sends. The slots limit how many streams send at the same time.
 */
const createStreams = ({ outbox: outboxes, deliver, deliveryQueue, logger }: Dependencies) => {
  const active = new Map<string, Running>();
  let idle: (() => void)[] = [];
  let closing = false;

  const stop = (streamId: string): void => {
    active.delete(streamId);
    if (active.size === 0) for (const go of idle.splice(0)) go();
  };

  /**
   * Runs `work` once and returns the time when its last read began. After a failure, returns the time when `work`
   * started, so that a later wake-up still counts.
   */
  const runOnce = async (streamId: string, work: () => Promise<number>): Promise<number> => {
    const startedAt = performance.now();
    try {
      return await work();
    } catch (cause) {
      // The sweep ends the claim as `unknown` and wakes the stream again for the remaining events.
      logger.error({ err: cause, streamId }, 'a delivery stream failed');
      return startedAt;
    }
  };

  /** Runs `work` until no wake-up is newer than its last read. `work` returns the time when that read began. */
  const run = async (streamId: string, stream: Running, work: () => Promise<number>): Promise<void> => {
    active.set(streamId, stream);
    let readAt = await runOnce(streamId, work);
    while (readAt < stream.wokenAt && !closing) readAt = await runOnce(streamId, work);
    stop(streamId);
  };

  /** The first run of a stream uses the reading that woke it; later ones read again. */
  const workOf = (reading: OutboxReading, endpointId: string): (() => Promise<number>) => {
    const key = reading.outbox._id;
    const given: GivenReading = { reading };
    return () => deliver.deliverStream(key, endpointId, given);
  };

  const deliverFrom = (reading: OutboxReading, endpointId: string): void => {
    const { at, outbox } = reading;
    const streamId = `${outbox._id}:${endpointId}`;
    const running = active.get(streamId);
    if (!running) {
      void run(streamId, { key: outbox._id, wokenAt: at }, workOf(reading, endpointId));
      return;
    }
    // The maximum is taken, because reads may finish in a different order than they started.
    running.wokenAt = Math.max(running.wokenAt, at);
    const trimId = `${streamId}:trim`;
    if (pendingOf(outbox, endpointId).length <= BACKLOG_MAX + 1 || active.has(trimId)) return;
    const { _id, assistantId } = outbox;
    void run(trimId, { key: null, wokenAt: at }, async () => {
      await deliver.trimStream({ _id, assistantId }, endpointId);
      return at;
    });
  };

  return {
    /**
     * Starts the streams of these conversations. Resolves when the streams have started, before their events are sent.
     */
    wake: async (keys: string[]): Promise<void> => {
      await mapAtMost(OUTBOXES_AT_ONCE, keys, async (key) => {
        if (deliver.leaveToEnding(key)) return;
        const at = performance.now();
        const outbox = await outboxes.read(key);
        if (closing || !outbox) return;
        for (const endpointId of endpointsOf(outbox)) deliverFrom({ at, outbox }, endpointId);
      });
    },

    wakeDelivery: (deliveryId: string): void => {
      if (closing || active.has(deliveryId)) return;
      void run(deliveryId, { key: null, wokenAt: 0 }, async () => {
        await deliver.deliverQueued(deliveryId);
        return 0;
      });
    },

    get active(): number {
      return active.size;
    },

    /** Starts no new streams, waits for running streams, and wakes other processes for the remaining events. */
    close: async (): Promise<void> => {
      closing = true;
      const keys = new Set([...active.values()].flatMap(({ key }) => key ?? []));
      if (active.size > 0) await new Promise<void>((resolve) => idle.push(resolve));
      for (const key of keys) deliveryQueue.wake(key);
    },
  };
};

/**
 * Limits the sends in flight, per endpoint and in total. A slot is acquired before the claim, so that waiting events
 * stay unclaimed. Once a quarter of all slots is in use, assistants share them, and the endpoints of an assistant its
 * part. Each share is what would be left for one more, so a new endpoint finds a slot even beside many that hang.
 */
const endpointShare =
  ({ perEndpoint, total }: { perEndpoint: number; total: number }) =>
  ({ own, inUse, tenants, holders }: Occupancy): boolean => {
    if (inUse >= total || own >= perEndpoint) return false;
    return inUse < total / 4 || own < Math.max(1, Math.floor(total / (tenants + 1) / (holders + 1)));
  };

/** How many streams end what must not be sent at once. An assistant gets as many as stay free, so it gets a half. */
const ENDING_MAX = 8;

type Options = {
  config: Config;
  logger: Logger;
  lifecycle: Lifecycle;
  /** Tests pass their own resolver or certificate authority. */
  sending?: Partial<SenderOptions>;
  breaking?: BreakerOptions;
};

/** Assembles and starts the delivery worker, for `main.ts` and for tests. */
export const openDeliveryWorker = async ({ config, logger, lifecycle, sending = {}, breaking = {} }: Options) => {
  const service = await openService({
    config,
    logger,
    lifecycle,
    redisRole: 'worker',
    asidePoolSize: BACKGROUND_POOL_SIZE,
  });
  const { conversations, endpoints, deliveries, deliveryQueue } = service;
  const { timing } = config;
  const eventMaxAgeMs = config.EVENT_MAX_AGE_S * 1000;
  const metrics = createMetrics({ token: config.METRICS_TOKEN });
  const countDelivery = countDeliveries(metrics);

  const sender = createSender({
    userAgent: `Parley-Webhooks/${VERSION}`,
    allowPrivate: config.WEBHOOK_ALLOW_PRIVATE,
    perEndpointConnections: config.ENDPOINT_CONCURRENCY,
    maxSockets: config.DELIVERY_CONCURRENCY,
    deadlineMs: timing.deliveryDeadlineMs,
    bodyGraceMs: timing.bodyGraceMs,
    ...sending,
  });
  lifecycle.add('sender', sender, (opened) => opened.close());
  const slots = createSlots(
    endpointShare({ perEndpoint: config.ENDPOINT_CONCURRENCY, total: config.DELIVERY_CONCURRENCY }),
  );
  const endings = createSlots(({ own, inUse }) => own < ENDING_MAX - inUse);
  const breaker = createDeliveryBreaker(breaking);
  const dispatch = createDispatch({
    endpoints,
    deliveries,
    sender,
    breaker,
    countDelivery,
    recordingMax: config.DELIVERY_CONCURRENCY,
    timing,
    logger,
  });
  const deliver = createDeliver({
    conversations,
    endpoints,
    deliveries,
    dispatch,
    breaker,
    slots,
    endings,
    wake: deliveryQueue.wake,
    eventMaxAgeMs,
    timing,
    reportEventWait: reportEventWaits(metrics),
    logger,
  });
  const streams = lifecycle.add(
    'delivery streams',
    createStreams({ outbox: conversations.outbox, deliver, deliveryQueue, logger }),
    (opened) => {
      slots.close();
      endings.close();
      return opened.close();
    },
  );

  const process = async (data: unknown): Promise<void> => {
    const { conversations: keys, deliveries: ids } = WakeUpJob.parse(data);
    for (const deliveryId of ids) streams.wakeDelivery(deliveryId);
    await streams.wake(keys);
  };
  const shared = { service, config, logger, lifecycle };
  await openQueueWorkers({ queue: DELIVERIES_QUEUE, concurrency: 8, maxStalledCount: 0, process }, shared);
  const suspended = (): string[] => [...breaker.suspended(), ...slots.saturated()];
  const healthPort = await openWorkerDuties(shared, { metrics, countDelivery, suspended });
  return { ...service, healthPort };
};
