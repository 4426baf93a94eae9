import { setTimeout as sleep } from 'node:timers/promises';
import { endpointsOf, type OutboxStore, type Woken } from '../../conversations/outbox.ts';
import type { BreakerOptions } from '../../platform/process/breaker.ts';
import { serverNow } from '../../platform/process/clock.ts';
import { VERSION } from '../../platform/process/lifecycle.ts';
import type { Logger } from '../../platform/process/logger.ts';
import { createPacedSlots, type PacedSlots } from '../../platform/process/paced-slots.ts';
import { createSlots, type Occupancy, UNBOUNDED, whatRemains, withoutReserve } from '../../platform/process/slots.ts';
import { startSweeper } from '../../platform/process/sweeper.ts';
import type { Module } from '../../service.ts';
import type { EndpointStore } from '../endpoints.ts';
import { type DeliveryQueue, WakeUpJob } from '../queue.ts';
import {
  createDeliver,
  type Deliver,
  type GivenReading,
  type OutboxReading,
  type ReportEventWait,
  type SendSlots,
} from './deliver.ts';
import { type CountDelivery, createDeliveryBreaker, createDispatch } from './dispatch.ts';
import { createDriveRecoveries } from './recover.ts';
import { createSender, type SenderOptions } from './send.ts';

type Running = { conversation: Woken | null; wokenAt: number; ended?: Promise<void> };

type Dependencies = {
  outbox: Pick<OutboxStore, 'readForWaking'>;
  deliver: Deliver;
  deliveryQueue: Pick<DeliveryQueue, 'wake'>;
  logger: Logger;
};

/** How many conversations that were woken are read at once. An assistant may have as many as remain free. */
const READ_AT_ONCE = 32;
/** How many wait for that, of one assistant and of all. Each is two ids. */
const WOKEN_WAITING = { most: 10_000, total: 50_000 };

/**
 * The delivery streams that this process is working on. Each stream runs only once at a time. If a stream is woken
 * after its last read began, it reads again before it stops. Two processes may work on the same stream, and the claim
 * decides which one sends. The slots limit how many streams send at the same time.
 */
const createStreams = ({ outbox: outboxes, deliver, deliveryQueue, logger }: Dependencies) => {
  const active = new Map<string, Running>();
  /** The conversations that are to be read, or are being read. `again`: it was woken since its read began. */
  const waking = new Map<string, { conversation: Woken; again: boolean }>();
  const reads = createSlots(whatRemains(READ_AT_ONCE), WOKEN_WAITING);
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
      // If an event was claimed, the sweep ends its claim as `unknown`. It wakes the stream again for what is pending.
      logger.error({ err: cause, streamId }, 'a delivery stream failed');
      return startedAt;
    }
  };

  /** Runs `work` until no wake-up is newer than its last read. `work` returns the time when that read began. */
  const run = (streamId: string, stream: Running, work: () => Promise<number>): Promise<void> => {
    active.set(streamId, stream);
    const untilDone = async (): Promise<void> => {
      let readAt = await runOnce(streamId, work);
      while (readAt < stream.wokenAt && !closing) readAt = await runOnce(streamId, work);
      stop(streamId);
    };
    stream.ended = untilDone();
    return stream.ended;
  };

  /** The first run of a stream uses the reading that woke it, if there is one; later ones read again. */
  const workOf = (key: string, endpointId: string, reading: OutboxReading | null): (() => Promise<number>) => {
    const given: GivenReading = { reading };
    return () => deliver.deliverStream(key, endpointId, given);
  };

  /** Starts a stream, or lets it read again if it is active. A read of its conversation that began `at` has found it. */
  const start = (conversation: Woken, endpointId: string, at: number, reading: OutboxReading | null): void => {
    const { _id: key } = conversation;
    const streamId = `${key}:${endpointId}`;
    const running = active.get(streamId);
    // The maximum is taken, because reads may finish in a different order than they started.
    if (running) running.wokenAt = Math.max(running.wokenAt, at);
    else void run(streamId, { conversation, wokenAt: at }, workOf(key, endpointId, reading));
  };

  const readAndStart = async (conversation: Woken): Promise<void> => {
    const at = performance.now();
    const found = await outboxes.readForWaking(conversation._id);
    if (!found) return;
    const { heads, whole } = found;
    const endpointIds = whole ? endpointsOf(whole) : await deliver.withoutStopped(heads);
    if (closing) return;
    for (const endpointId of endpointIds) start(conversation, endpointId, at, whole && { at, outbox: whole });
  };

  /** Reads a conversation in its assistant's share, and once more if it is woken meanwhile. */
  const readInTurn = async (conversation: Woken): Promise<void> => {
    const { _id: key, assistantId } = conversation;
    const own = { conversation, again: true };
    waking.set(key, own);
    while (own.again && !closing) {
      const slot = await reads.acquire(assistantId);
      if (!slot) break; // too many wait, so a sweep finds this one later
      own.again = false;
      try {
        await readAndStart(conversation);
      } catch (cause) {
        if (!closing) logger.error({ err: cause, key }, 'a conversation that was woken could not be read');
      } finally {
        slot.release();
      }
    }
    waking.delete(key);
  };

  return {
    /** Runs a stream, whatever is pending. Resolves when it stops. */
    run: async (conversation: Woken, endpointId: string): Promise<void> => {
      const { _id: key } = conversation;
      const streamId = `${key}:${endpointId}`;
      const running = active.get(streamId);
      if (running) {
        running.wokenAt = performance.now();
        return running.ended;
      }
      if (!closing)
        await run(streamId, { conversation, wokenAt: 0 }, () =>
          deliver.deliverStream(key, endpointId, { reading: null }),
        );
    },

    /** Starts the streams of a conversation once it has been read. A job does not wait for this: others are behind it. */
    wake: (conversation: Woken): void => {
      const { _id: key } = conversation;
      const known = waking.get(key);
      if (known) known.again = true;
      else if (!closing) void readInTurn(conversation);
    },

    wakeDelivery: (deliveryId: string): void => {
      if (closing || active.has(deliveryId)) return;
      void run(deliveryId, { conversation: null, wokenAt: 0 }, async () => {
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
      const all = [...active.values(), ...waking.values()].flatMap(({ conversation }) => conversation ?? []);
      const left = new Map(all.map((conversation) => [conversation._id, conversation]));
      reads.close();
      if (active.size > 0) await new Promise<void>((resolve) => idle.push(resolve));
      for (const conversation of left.values()) deliveryQueue.wake(conversation);
    },
  };
};

/** A send that takes longer makes its endpoint slow, or hanging. */
const SENDING = { slowMs: 1_000, hangsMs: 3_000 };

/** Ends with the time, or with the signal. */
const waitUntil = (time: Date, signal: AbortSignal): Promise<void> =>
  sleep(Math.max(0, time.getTime() - serverNow()), undefined, { signal }).catch(() => undefined);

/**
 * Slots for sends that also keep an endpoint's rate. The endpoint's document has the next free time, so all workers
 * share it. In each worker one send of an endpoint at a time reserves it, waits for it, and only then takes a slot: sends
 * that wait take no slot from others, and those that had to wait for a slot do not come all at once.
 */
const createRatedSlots = (slots: PacedSlots, reserve: EndpointStore['reserveSend']): SendSlots => {
  const turns = createSlots(({ own }) => own < 1);
  const closing = new AbortController();
  return {
    acquire: async ({ _id: endpointId, enabled, ratePerSecond = null }, wanted) => {
      if (ratePerSecond === null) return slots.acquire(endpointId, wanted);
      wanted.onWait?.();
      const turn = await turns.acquire(endpointId, wanted);
      if (!turn) return null;
      try {
        const time = await reserve({ _id: endpointId, enabled });
        if (time) await waitUntil(time, closing.signal);
        const slot = await slots.acquire(endpointId, wanted);
        return slot && { ...slot, hasWaited: true };
      } finally {
        turn.release();
      }
    },
    saturated: () => [...slots.saturated(), ...turns.saturated()],
    close: () => {
      slots.close();
      turns.close();
      closing.abort();
    },
  };
};

type SendLimits = { perEndpoint: number; total: number };

/**
 * Limits the sends in flight, per endpoint and in total. A slot is acquired before the claim, so that waiting events
 * stay unclaimed. Once a quarter of all slots is in use, assistants share all slots equally, and the endpoints of an
 * assistant share its part. Each share is as large as if there were one more, so a new endpoint finds a slot even
 * beside many that hang. Of the last quarter, an assistant gets slots only while it has less than half of its share.
 */
const createSendSlots = ({ perEndpoint, total }: SendLimits): PacedSlots => {
  const shareOf =
    (most: number) =>
    ({ own, ofTenant, inUse, tenants, holders }: Occupancy): boolean => {
      if (inUse >= most || own >= perEndpoint) return false;
      if (inUse < most / 4) return true;
      const share = Math.max(1, Math.floor(most / (tenants + 1)));
      if (inUse >= withoutReserve(most)) return ofTenant < share / 2;
      return ofTenant < share && own < Math.max(1, Math.floor(share / (holders + 1)));
    };
  return createPacedSlots({ total, shareOf, ...SENDING });
};

/** Recoveries have at most a fifth of an endpoint's requests in flight, but at least one. */
const RECOVERING = 5;

/**
 * How many streams end what must not be sent at once. An assistant may have as many as remain free.
 */
const ENDING_MAX = 8;
/** How many streams look at once for what a recovery sends again. An assistant may have as many as remain free. */
const LOOKING_MAX = 8;

/** Tests pass their own resolver or certificate authority, and their own breaker. */
export type SendingOptions = { sending?: Partial<SenderOptions>; breaking?: BreakerOptions };

type EventSending = {
  /** Starts the streams and deliveries that a job names. */
  process: (data: unknown) => Promise<void>;
  /** Endpoints to which nothing is sent now, because they fail or have all their slots in use. */
  suspended: () => string[];
};

/** Sends events: streams, tests and resends that are woken, and recoveries. The lifecycle closes what this opens. */
export const openSending = (
  { service, config, logger, lifecycle }: Module,
  {
    sending = {},
    breaking = {},
    ...counted
  }: SendingOptions & {
    countDelivery: CountDelivery;
    reportEventWait: ReportEventWait;
  },
): EventSending => {
  const { conversations, endpoints, deliveryQueue, aside } = service;
  const { timing } = config;
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
  const slots = createSendSlots({ perEndpoint: config.ENDPOINT_CONCURRENCY, total: config.DELIVERY_CONCURRENCY });
  const rated = createRatedSlots(slots, endpoints.reserveSend);
  const recovering = createSlots(({ own }) => own < Math.max(1, Math.floor(config.ENDPOINT_CONCURRENCY / RECOVERING)));
  const looks = createSlots(whatRemains(LOOKING_MAX), UNBOUNDED);
  const endings = createSlots(whatRemains(ENDING_MAX));
  const breaker = createDeliveryBreaker(breaking);
  const dispatch = createDispatch({
    ...service,
    ...counted,
    sender,
    slots,
    breaker,
    recordingMax: config.DELIVERY_CONCURRENCY,
    timing,
    sendsTraceparent: config.WEBHOOK_TRACEPARENT,
    logger,
  });
  const deliver = createDeliver({
    ...service,
    ...counted,
    dispatch,
    breaker,
    slots: rated,
    recovering,
    looks,
    endings,
    eventMaxAgeMs: config.EVENT_MAX_AGE_S * 1000,
    timing,
    logger,
  });
  const streams = lifecycle.add(
    'delivery streams',
    createStreams({ outbox: conversations.outbox, deliver, deliveryQueue, logger }),
    async (opened) => {
      rated.close();
      recovering.close();
      looks.close();
      endings.close();
      await Promise.all([driver.close(), opened.close()]);
    },
  );

  // What recoveries send is chosen on the second pool.
  const driver = createDriveRecoveries({
    ...aside,
    deliveryQueue,
    endpoints,
    runStream: streams.run,
    timing,
    logger,
  });
  const looking = startSweeper('recoveries', driver.look, { everyMs: timing.sweepEveryMs, logger });
  lifecycle.add('recoveries', looking, (opened) => opened.stop());

  return {
    process: async (data) => {
      const { conversations: keys, assistants, deliveries: ids } = WakeUpJob.parse(data);
      for (const deliveryId of ids) streams.wakeDelivery(deliveryId);
      for (const [nth, key] of keys.entries()) streams.wake({ _id: key, assistantId: assistants[nth] ?? '' });
    },
    suspended: () => [...breaker.suspended(), ...rated.saturated()],
  };
};
