import { LOOK_AHEAD, type Outbox, type OutboxStore, pendingOf } from '../../src/conversations/outbox.ts';
import type { DeliveryStore } from '../../src/deliveries/store.ts';
import type { Slot, Slots } from '../../src/process/slots.ts';
import type { Timing } from '../../src/process/time-limits.ts';
import { type EndpointStore, isPaused, type StoredEndpoint } from '../../src/webhooks/endpoint-store.ts';
import type { OutboxEvent } from '../../src/conversations/conversation.ts';
import { claimOf, createEndUndeliverable, undeliverableOf } from '../../src/deliveries/undeliverable.ts';
import type { Claim } from '../../src/deliveries/claims.ts';
import { type ErrorKind, isFinal, neverSent, type StoredDelivery } from '../../src/deliveries/delivery.ts';
import { serverNow } from '../../src/process/clock.ts';
import type { Logger } from '../../src/process/logger.ts';
import { isMongoUnavailable } from '../../src/mongo/failures.ts';
import type { ReportEventWait } from '../../src/service-metrics.ts';
import type { DeliveryBreaker, Dispatch, Target } from './dispatch.ts';

/** An outbox and the monotonic time just before it was read. */
export type OutboxReading = { at: number; outbox: Outbox };
/** Handed over once, so that the caller does not keep an outbox of hundreds of events while its stream waits. */
export type GivenReading = { reading: OutboxReading | null };
type Reading = OutboxReading & { endpoint: StoredEndpoint | null };

type Dependencies = {
  endpoints: Pick<EndpointStore, 'readForSending'>;
  outboxes: Pick<OutboxStore, 'read'>;
  isFresh: (reading: { at: number }) => boolean;
};

/** Reads delivery streams: the outbox of a conversation together with one of its endpoints. */
const createReadings = ({ endpoints, outboxes, isFresh }: Dependencies) => {
  const read = async (key: string, endpointId: string): Promise<Reading | null> => {
    const at = performance.now();
    const [outbox, endpoint] = await Promise.all([outboxes.read(key), endpoints.readForSending(endpointId)]);
    return outbox && { at, outbox, endpoint };
  };

  /** Reads the endpoint after the outbox, because events are ended for good by what the endpoint is then. */
  const readForEnding = async (key: string, endpointId: string): Promise<Reading | null> => {
    const at = performance.now();
    const outbox = await outboxes.read(key);
    return outbox && { at, outbox, endpoint: await endpoints.readForSending(endpointId) };
  };

  /**
   * Performs a write that returns the new outbox. Reads the endpoint in parallel if more events were pending before.
   * Otherwise reads the endpoint after the write, and only if an event is pending.
   */
  const readAfter = async (
    before: Reading,
    endpointId: string,
    write: () => Promise<Outbox | null>,
  ): Promise<Reading | null> => {
    const at = performance.now();
    const more = pendingOf(before.outbox, endpointId).length > 1;
    const [outbox, early] = await Promise.all([write(), more ? endpoints.readForSending(endpointId) : null]);
    if (!outbox) return null;
    const isDone = pendingOf(outbox, endpointId).length === 0;
    return { at, outbox, endpoint: early ?? (isDone ? null : await endpoints.readForSending(endpointId)) };
  };

  /**
   * Reads again what may have changed during the wait for a slot: the endpoint, which may be paused, and after a long
   * wait the outbox too.
   */
  const readInSlot = async (before: Reading, endpointId: string, { hasWaited }: Slot): Promise<Reading | null> => {
    if (!isFresh(before)) return read(before.outbox._id, endpointId);
    return hasWaited ? { ...before, endpoint: await endpoints.readForSending(endpointId) } : before;
  };

  return { read, readForEnding, readAfter, readInSlot };
};

type DeliverDependencies = {
  conversations: { outbox: OutboxStore };
  endpoints: EndpointStore;
  deliveries: DeliveryStore;
  dispatch: Dispatch;
  breaker: DeliveryBreaker;
  slots: Slots;
  /** Limits the streams whose undeliverable events are ended at once. */
  endings: Slots;
  wake: (key: string) => void;
  eventMaxAgeMs: number;
  timing: Timing;
  reportEventWait: ReportEventWait;
  logger: Logger;
};

/** The next step for a stream: end undeliverable events, send the head, or stop. */
type Next = { kind: 'end' } | Send | { kind: 'stop' };
type Send = { kind: 'send'; event: OutboxEvent; endpoint: StoredEndpoint };

/** One try of the head: `ended`, `released` (still pending, nothing was written), or `foreign`: another process sends it. */
type Sent = 'ended' | 'released' | 'foreign';
type Ended = { event: OutboxEvent; how: Sent };
type StreamRef = Pick<Outbox, '_id' | 'assistantId'>;
type ClaimedQueued = { delivery: StoredDelivery; token: string };
type ForQueued = { at: number; endpoint: StoredEndpoint | null; slot: Slot };

/**
 * Delivers one stream: the events of a conversation to an endpoint, in order. Each send starts after the previous event
 * has ended. An event is sent only by the process that claimed it, and nothing repeats a send after its claim
 * (docs/contract.md, At most once).
 */
export type Deliver = {
  /**
   * Sends a stream's events until none can be sent. If the outbox has already been read, pass it as `given` to save a
   * read. Returns the start time of the last read, because every event stored before that time has been seen.
   */
  deliverStream: (key: string, endpointId: string, given: GivenReading) => Promise<number>;

  /**
   * Ends the events above the stream's size limit. It runs while an event is being sent, because a send may take
   * long.
   */
  trimStream: (stream: StreamRef, endpointId: string) => Promise<void>;

  /**
   * True while a stream of this conversation ends events, or waits for that. The conversation is then woken again
   * afterwards, and its hundreds of events are not read before.
   */
  leaveToEnding: (key: string) => boolean;

  /** Delivers a test or a resend. Both ignore the order of the stream and its pauses. */
  deliverQueued: (deliveryId: string) => Promise<void>;
};

export const createDeliver = (dependencies: DeliverDependencies): Deliver => {
  const { conversations, endpoints, deliveries, dispatch, breaker, slots, endings, wake } = dependencies;
  const { eventMaxAgeMs, timing, reportEventWait, logger } = dependencies;
  const { outbox: outboxes } = conversations;
  const endUndeliverable = createEndUndeliverable({
    conversations,
    deliveries,
    eventMaxAgeMs,
    onEnded: dispatch.logEnd,
  });

  const isFresh = ({ at }: { at: number }): boolean => performance.now() - at < timing.readFreshMs;
  const { read, readForEnding, readAfter, readInSlot } = createReadings({ endpoints, outboxes, isFresh });

  const nextOf = ({ outbox, endpoint }: Reading, endpointId: string): Next => {
    const pending = pendingOf(outbox, endpointId);
    const [event] = pending;
    if (!event) return { kind: 'stop' };
    if (undeliverableOf(pending, { endpoint, eventMaxAgeMs }).length > 0) return { kind: 'end' };
    if (!endpoint || isPaused(endpoint, serverNow()) || breaker.isSuspended(endpointId)) return { kind: 'stop' };
    return { kind: 'send', event, endpoint };
  };

  /**
   * What the next step needs of a reading. A stream may wait for its slot and its receiver, and thousands of streams that
   * keep all of their events would fill the memory.
   */
  const forNextStep = (reading: Reading, endpointId: string): Reading => {
    const first = pendingOf(reading.outbox, endpointId).slice(0, LOOK_AHEAD);
    return { ...reading, outbox: { ...reading.outbox, outbox: first } };
  };

  /**
   * Returns null if this process cannot decrypt the secrets. The event then stays unclaimed, because another process
   * may have the right key.
   */
  const targetOf = (endpoint: StoredEndpoint, at: number): Target | null => {
    try {
      return { at, endpoint, secrets: endpoints.openSecrets(endpoint, serverNow()) };
    } catch (cause) {
      logger.error({ err: cause, endpointId: endpoint._id }, 'the secrets of an endpoint cannot be opened');
      breaker.suspend(endpoint._id);
      return null;
    }
  };

  /** Ends an event whose message is gone, because its conversation was erased after the outbox was read. */
  const endErased = async (claim: Claim): Promise<'ended'> => {
    const { won } = await deliveries.claimEnded(claim, neverSent('erased'));
    if (won) dispatch.logEnd(claim, neverSent('erased'));
    return 'ended';
  };

  /**
   * Ends an event whose record MongoDB cannot store. Otherwise every sweep would try the event again, and later events
   * would wait.
   */
  const endUnstorable = async (claim: Claim, cause: unknown): Promise<'ended'> => {
    const { eventId, endpointId } = claim;
    logger.error({ err: cause, eventId, endpointId }, 'an event could not be claimed');
    const exchange = neverSent('internal');
    const { won } = await deliveries.claimEnded({ ...claim, body: '' }, exchange);
    if (won) dispatch.logEnd(claim, exchange);
    return 'ended';
  };

  /** Claims and sends the first pending event. Every return without a send releases the breaker's permit. */
  const sendHead = async ({ at, outbox }: Reading, { event, endpoint }: Send, slot: Slot): Promise<Sent> => {
    const endpointId = endpoint._id;
    const body = await deliveries.composeBody(outbox, event, endpoint.include);
    const claim = claimOf(outbox, event, { endpointId, url: endpoint.url, body: body ?? '' });
    if (body === null) return endErased(claim);
    const target = targetOf(endpoint, at);
    if (!target || !breaker.tryAcquire(endpointId)) return 'foreign';
    const claimed = await deliveries.claim(claim).catch((cause: unknown) => {
      breaker.release(endpointId);
      if (isMongoUnavailable(cause)) throw cause;
      return endUnstorable(claim, cause);
    });
    if (claimed === 'ended') return 'ended';
    if (!claimed.won) {
      breaker.release(endpointId);
      // An event that has already ended is removed from the stream. If the event is being sent or its outcome is
      // unknown, the owner of its claim continues the stream.
      return claimed.found && isFinal(claimed.found.outcome) ? 'ended' : 'foreign';
    }
    const own = { ...claimed, redelivery: false, queued: false };
    if (isFresh(target)) {
      const waitedS = Math.max(0, serverNow() - event.at.getTime()) / 1000;
      const how = await dispatch.dispatch(claim, own, target, slot);
      if (how === 'ended') reportEventWait(waitedS);
      return how;
    }
    // The claim took so long that the endpoint may have changed since it was read. The event is therefore not sent now.
    breaker.release(endpointId);
    return (await deliveries.release(own.deliveryId, own.token, own)) ? 'released' : 'ended';
  };

  /** Sends the first pending event in a slot, which may be released early. */
  const sendInSlot = async (
    before: Reading,
    endpointId: string,
    slot: Slot,
  ): Promise<{ reading: Reading | null; sent?: Ended }> => {
    let reading = await readInSlot(before, endpointId, slot);
    const next = reading && nextOf(reading, endpointId);
    if (!reading || next?.kind !== 'send') return { reading };
    reading = forNextStep(reading, endpointId);
    const how = await sendHead(reading, next, slot);
    return { reading, sent: { event: next.event, how } };
  };

  /** How many streams of a conversation are ending events, and whether it was woken meanwhile. */
  const ending = new Map<string, { streams: number; woken: boolean }>();
  const noteEnding = (key: string): (() => void) => {
    const noted = ending.get(key) ?? { streams: 0, woken: false };
    ending.set(key, noted);
    noted.streams += 1;
    return () => {
      noted.streams -= 1;
      if (noted.streams > 0) return;
      ending.delete(key);
      if (noted.woken) wake(key);
    };
  };

  /**
   * Ends what must not be sent. A stream may have hundreds of such events, and all streams of an endpoint have them at
   * once when it is disabled. So a few streams do this at once, and what waits keeps no events.
   */
  const endUnwanted = async ({ _id: key, assistantId }: StreamRef, endpointId: string): Promise<Reading | null> => {
    const done = noteEnding(key);
    const slot = await endings.acquire(assistantId);
    try {
      const reading = slot && (await readForEnding(key, endpointId));
      if (!reading || nextOf(reading, endpointId).kind !== 'end') return reading;
      return await readAfter(reading, endpointId, () => endUndeliverable(reading, endpointId));
    } finally {
      slot?.release();
      done();
    }
  };

  /**
   * Handles the first pending event and returns the next reading. Returns null if the stream is empty or paused, if no
   * slot is free, or if another process sends the event.
   */
  const step = async (before: Reading, endpointId: string, next: Next['kind']): Promise<Reading | null> => {
    if (next === 'stop') return null;
    if (next === 'end') return endUnwanted(before.outbox, endpointId);
    const slot = await slots.acquire(endpointId, { tenant: before.outbox.assistantId });
    if (!slot) return null;
    const { reading, sent } = await sendInSlot(before, endpointId, slot).finally(slot.release);
    if (!reading || !sent) return reading;
    if (sent.how === 'foreign') return null;
    if (sent.how === 'released') return read(reading.outbox._id, endpointId);
    return readAfter(reading, endpointId, () => outboxes.pullEnded(reading.outbox, endpointId, [sent.event]));
  };

  /** Takes the given reading, or reads the outbox. */
  const open = async (key: string, endpointId: string, given: GivenReading): Promise<Reading | null> => {
    const { reading } = given;
    given.reading = null;
    return reading ? { ...reading, endpoint: await endpoints.readForSending(endpointId) } : read(key, endpointId);
  };

  /** Sends a claimed test or resend, or ends it without a send. */
  const sendQueued = async ({ delivery, token }: ClaimedQueued, { at, endpoint, slot }: ForQueued) => {
    const { _id: deliveryId, body, createdAt, redelivery } = delivery;
    const end = async (errorKind: ErrorKind): Promise<void> => {
      await deliveries.recordOutcome(deliveryId, token, neverSent(errorKind));
      dispatch.logEnd(delivery, neverSent(errorKind));
    };
    if (!endpoint) return end('endpoint_removed');
    if (!body) return end('erased');
    if (serverNow() - createdAt.getTime() > eventMaxAgeMs) return end('expired');
    const target = targetOf(endpoint, at);
    if (!target) return end('internal');
    const own = { deliveryId, token, redelivery, queued: true };
    if (!isFresh(target)) return void (await deliveries.release(deliveryId, token, own));
    await dispatch.dispatch({ ...delivery, body }, own, target, slot);
  };

  return {
    deliverStream: async (key, endpointId, given) => {
      let at = given.reading?.at ?? performance.now();
      let reading = await open(key, endpointId, given);
      while (reading) {
        ({ at } = reading);
        const { kind } = nextOf(reading, endpointId);
        reading = forNextStep(reading, endpointId);
        reading = await step(reading, endpointId, kind);
      }
      return at;
    },

    leaveToEnding: (key) => {
      const noted = ending.get(key);
      if (noted) noted.woken = true;
      return noted !== undefined;
    },

    trimStream: async (stream, endpointId) => {
      await endUnwanted(stream, endpointId);
    },

    deliverQueued: async (deliveryId) => {
      const queued = (await deliveries.readByIds([deliveryId])).get(deliveryId);
      const tenant = queued?.assistantId ?? '';
      const slot = queued?.outcome === 'queued' ? await slots.acquire(queued.endpointId, { tenant }) : null;
      if (!queued || !slot) return;
      try {
        const at = performance.now();
        const endpoint = await endpoints.readForSending(queued.endpointId);
        const claimed = await deliveries.claimQueued(deliveryId);
        if (claimed) await sendQueued(claimed, { at, endpoint, slot });
      } finally {
        slot.release();
      }
    },
  };
};
