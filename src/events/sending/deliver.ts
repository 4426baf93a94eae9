import {
  endpointsOf,
  LOOK_AHEAD,
  type Outbox,
  type OutboxStore,
  pendingOf,
  sequencesOf,
  type Waking,
} from '../../conversations/outbox.ts';
import type { ConversationStore } from '../../conversations/store.ts';
import type { Missed, Recoveries } from '../recoveries.ts';
import type { DeliveryStore } from '../store.ts';
import type { Slot, Slots, Wanted } from '../../platform/process/slots.ts';
import type { Timing } from '../../platform/process/time-limits.ts';
import type { StoredEndpoint } from '../endpoint.ts';
import { type EndpointStore, isPaused } from '../endpoints.ts';
import type { OutboxEvent } from '../../conversations/conversation.ts';
import {
  type Claim,
  claimAgain,
  claimOf,
  createEndUndeliverable,
  type Redelivery,
  undeliverableOf,
} from '../claims.ts';
import { type ErrorKind, isFinal, neverSent, type StoredDelivery, tellsOfErasure } from '../delivery.ts';
import { serverNow } from '../../platform/process/clock.ts';
import type { Logger } from '../../platform/process/logger.ts';
import { type TraceSpan, type Tracing, within } from '../../platform/process/tracing.ts';
import { isMongoUnavailable } from '../../platform/mongo/failures.ts';
import type { DeliveryBreaker, Dispatch, Target } from './dispatch.ts';
import { createLru } from '../../platform/process/lru.ts';

/** An outbox and the monotonic time just before it was read. */
export type OutboxReading = { at: number; outbox: Outbox };
/** Handed over once, so that the caller does not keep an outbox while its stream waits. */
export type GivenReading = { reading: OutboxReading | null };
/** `nothingMissed`: a running recovery has nothing to send in this stream. */
type Reading = OutboxReading & { endpoint: StoredEndpoint | null; nothingMissed?: true };
/** The reading of a stream, which lets it go if it must wait for a slot: thousands may wait, each with tens of kilobytes. */
type Held = { reading: Reading | null };
const letGo = (held: Held): void => {
  held.reading = null;
};
/** What slots ask of an endpoint. */
type Asked = Pick<StoredEndpoint, '_id' | 'enabled' | 'ratePerSecond'>;
/** What is left of a stream that waits. */
type Waiting = { key: string; endpointId: string; assistantId: string; asked: Asked };

const askedOf = (endpointId: string, endpoint: StoredEndpoint | null): Asked => ({
  _id: endpointId,
  enabled: endpoint?.enabled ?? false,
  ratePerSecond: endpoint?.ratePerSecond ?? null,
});

type Dependencies = {
  endpoints: Pick<EndpointStore, 'readForSending'>;
  outboxes: Pick<OutboxStore, 'read' | 'readStream'>;
  isFresh: (reading: { at: number }) => boolean;
};

/** Reads delivery streams: the outbox of a conversation together with one of its endpoints. */
const createReadings = ({ endpoints, outboxes, isFresh }: Dependencies) => {
  const read = async (key: string, endpointId: string): Promise<Reading | null> => {
    const at = performance.now();
    const [outbox, endpoint] = await Promise.all([
      outboxes.readStream({ key, endpointId }),
      endpoints.readForSending(endpointId),
    ]);
    return outbox && { at, outbox, endpoint };
  };

  /**
   * Reads the endpoint after the outbox, because the present state of the endpoint decides which events are ended for
   * good.
   */
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

  /** Reads again after a wait for the slot, because the endpoint may have been paused meanwhile. */
  const readInSlot = async ({ reading }: Held, { key, endpointId }: Waiting, slot: Slot): Promise<Reading | null> =>
    reading && !slot.hasWaited && isFresh(reading) ? reading : read(key, endpointId);

  return { read, readForEnding, readAfter, readInSlot };
};

/** The slots of sends. A send to an endpoint with a rate also waits for its time. */
export type SendSlots = Pick<Slots, 'saturated' | 'close'> & {
  acquire: (endpoint: Asked, wanted: Wanted) => Promise<Slot | null>;
};

export type ReportEventWait = (seconds: number) => void;

type DeliverDependencies = {
  conversations: Pick<ConversationStore, 'findHead'> & { outbox: OutboxStore };
  endpoints: EndpointStore;
  deliveries: DeliveryStore;
  recoveries: Pick<Recoveries, 'nextMissed' | 'isOver'>;
  dispatch: Dispatch;
  breaker: DeliveryBreaker;
  slots: SendSlots;
  /** Limits what recoveries send at once to an endpoint. The other slots are left to live events. */
  recovering: Slots;
  /** Limits the streams that look at once whether a recovery has something to send. */
  looks: Slots;
  /** Limits the streams whose undeliverable events are ended at once. */
  endings: Slots;
  eventMaxAgeMs: number;
  timing: Timing;
  reportEventWait: ReportEventWait;
  tracing: Tracing;
  logger: Logger;
};

/** The next step for a stream: end undeliverable events, send a missed event for a recovery, send the head, or stop. */
type Next = { kind: 'end' } | { kind: 'recover' } | Send | { kind: 'stop' };
/**
 * A delivery that waited longer has its own trace with a link to the turn's trace, which collectors consider ended by
 * then.
 */
const WAITED_MS = 60_000;
/** For how many streams a process remembers that nothing was missed. */
const KNOWN_WHOLE = 10_000;
type Send = { kind: 'send'; event: OutboxEvent; endpoint: StoredEndpoint };

/**
 * One try of the head: `ended`, `released` (still pending, nothing was written), or `foreign`: another process sends
 * it.
 */
type Sent = 'ended' | 'released' | 'foreign';
type Ended = { event: OutboxEvent; how: Sent };
type ClaimedQueued = { delivery: StoredDelivery; token: string };
type Step = { kind: Next['kind']; waiting: Waiting };
type ForQueued = { at: number; endpoint: StoredEndpoint | null; slot: Slot; isErased: boolean };

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

  /** The endpoints of a conversation whose streams would not stop at once. */
  withoutStopped: (heads: Waking['heads']) => Promise<string[]>;

  /** Delivers what has no outbox. A test and a resend ignore the order of the stream and its pauses. */
  deliverQueued: (deliveryId: string) => Promise<void>;
};

export const createDeliver = (dependencies: DeliverDependencies): Deliver => {
  const { conversations, endpoints, deliveries, recoveries, dispatch, breaker } = dependencies;
  const { slots, recovering, looks, endings } = dependencies;
  const { eventMaxAgeMs, timing, reportEventWait, tracing, logger } = dependencies;
  const { outbox: outboxes } = conversations;
  const endUndeliverable = createEndUndeliverable({
    conversations,
    deliveries,
    eventMaxAgeMs,
    onEnded: dispatch.logEnd,
  });

  const isFresh = ({ at }: { at: number }): boolean => performance.now() - at < timing.readFreshMs;
  const { read, readForEnding, readAfter, readInSlot } = createReadings({ endpoints, outboxes, isFresh });

  /** Streams in which a recovery has nothing to send, now and later. */
  const whole = createLru<true>({ most: KNOWN_WHOLE });

  /**
   * True if a recovery may have something to send in this stream. Missed events are sent before pending ones, which are
   * newer.
   */
  const mayMiss = ({ outbox: { _id: key }, endpoint, nothingMissed }: Reading): boolean =>
    endpoint?.recovery !== undefined && !nothingMissed && !whole.has(`${endpoint.recovery.recoveryId}:${key}`);

  /** True while nothing is sent to an endpoint. */
  const isHeld = (endpoint: StoredEndpoint): boolean =>
    isPaused(endpoint, serverNow()) || breaker.isSuspended(endpoint._id);

  /** True if a stream would stop at once: its endpoint is held, and its first event is not to be ended. */
  const isStopped = async (heads: Waking['heads'], endpointId: string): Promise<boolean> => {
    const endpoint = await endpoints.readForSending(endpointId);
    const [head] = pendingOf(heads, endpointId);
    const isUndeliverable = head && undeliverableOf([head], { endpoint, eventMaxAgeMs }).length > 0;
    return endpoint !== null && !isUndeliverable && isHeld(endpoint);
  };

  const nextOf = (reading: Reading, endpointId: string): Next => {
    const { outbox, endpoint } = reading;
    const pending = pendingOf(outbox, endpointId);
    const [event] = pending;
    if (undeliverableOf(pending, { endpoint, eventMaxAgeMs }).length > 0) return { kind: 'end' };
    if (!endpoint?.enabled || isHeld(endpoint)) return { kind: 'stop' };
    if (mayMiss(reading)) return { kind: 'recover' };
    return event ? { kind: 'send', event, endpoint } : { kind: 'stop' };
  };

  const stepOf = (reading: Reading, endpointId: string): Step => {
    const { _id: key, assistantId } = reading.outbox;
    const asked = askedOf(endpointId, reading.endpoint);
    return { kind: nextOf(reading, endpointId).kind, waiting: { key, endpointId, assistantId, asked } };
  };

  /** What the next step needs of a reading: many streams may look for what they missed, or wait for their receivers. */
  const forNextStep = (reading: Reading, endpointId: string): Reading => {
    const { outbox } = reading;
    if (outbox.behind !== undefined) return reading;
    const pending = pendingOf(outbox, endpointId);
    const behind = Math.max(0, pending.length - LOOK_AHEAD);
    return { ...reading, outbox: { ...outbox, outbox: pending.slice(0, LOOK_AHEAD), behind } };
  };

  /**
   * Returns null if this process cannot decrypt the secrets. The event then stays unclaimed, because another process
   * may have the right key.
   */
  const targetOf = (endpoint: StoredEndpoint, at: number): Target | null => {
    try {
      const secrets = endpoints.openSecrets(endpoint, serverNow());
      return { at, endpoint, secrets, headers: endpoints.openHeaders(endpoint) };
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

  type Traced = Pick<Claim, 'eventId' | 'endpointId' | 'event' | 'trace'>;

  /**
   * Opens the span of a delivery in the trace of its turn. If `apart`, the span begins its own trace, with a link to
   * the turn's.
   */
  const openSpan = ({ eventId, endpointId, event, trace }: Traced, apart: boolean): TraceSpan => {
    const attributes = { 'parley.event_id': eventId, 'parley.endpoint_id': endpointId, 'parley.event': event };
    const options = { kind: 'consumer' as const, attributes };
    if (trace === undefined || apart) return tracing.begin('deliver', null, { ...options, links: [trace] });
    return tracing.step('deliver', trace, options);
  };

  const claimIn = (span: TraceSpan, ...wanted: Parameters<DeliveryStore['claim']>) =>
    within(tracing.step('claim', span.context), deliveries.claim(...wanted));

  /** Claims and sends the first pending event. Every return without a send releases the breaker's permit. */
  const sendHead = async ({ at, outbox }: Reading, { event, endpoint }: Send, slot: Slot): Promise<Sent> => {
    const endpointId = endpoint._id;
    const body = await deliveries.composeBody(outbox, event, endpoint.include);
    const sequence = sequencesOf(outbox, endpointId).get(event.eventId) ?? null;
    const claim = claimOf(outbox, event, { endpointId, url: endpoint.url, body: body ?? '', sequence });
    if (body === null) return endErased(claim);
    const target = targetOf(endpoint, at);
    if (!target || !breaker.tryAcquire(endpointId)) return 'foreign';
    const span = openSpan(claim, serverNow() - event.at.getTime() > WAITED_MS);
    return within(span, claimAndSend({ claim, target }, slot, span));
  };

  /** With `again`, a missed event: its outbox may be empty. */
  const claimAndSend = async (
    { claim, again, target }: { claim: Claim; again?: Redelivery; target: Target },
    slot: Slot,
    span: TraceSpan,
  ): Promise<Sent> => {
    const { endpointId } = claim;
    const claimed = await claimIn(span, claim, again).catch((cause: unknown) => {
      breaker.release(endpointId);
      if (again || isMongoUnavailable(cause)) throw cause;
      return endUnstorable(claim, cause);
    });
    if (claimed === 'ended') return 'ended';
    if (!claimed.won) {
      breaker.release(endpointId);
      // An event that has already ended is removed from the stream. If the event is being sent or its outcome is
      // unknown, the owner of its claim continues the stream.
      return claimed.found && isFinal(claimed.found.outcome) ? 'ended' : 'foreign';
    }
    const own = { ...claimed, redelivery: again !== undefined, queued: false, span };
    // If the outbox was empty, an erasure before the claim has waited for nothing. One after it waits for the outcome.
    if (again && (await isOfErased(claim))) {
      breaker.release(endpointId);
      await deliveries.recordOutcome(own.deliveryId, own.token, neverSent('erased'));
      dispatch.logEnd(claim, neverSent('erased'), span);
      return 'ended';
    }
    if (isFresh(target)) {
      const waitedS = Math.max(0, serverNow() - claim.happenedAt.getTime()) / 1000;
      const how = await dispatch.dispatch(claim, own, target, slot);
      if (how === 'ended' && !again) reportEventWait(waitedS);
      return how;
    }
    // The claim took so long that the endpoint may have changed since it was read. The event is therefore not sent now.
    breaker.release(endpointId);
    return (await deliveries.release(own.deliveryId, own.token, own)) ? 'released' : 'ended';
  };

  /** What a running recovery sends next in this stream. */
  const findMissed = async ({ outbox, endpoint }: Reading) => {
    const { recovery } = endpoint ?? {};
    if (!recovery) return null;
    const { recoveryId } = recovery;
    const missed = await recoveries.nextMissed(recoveryId, outbox.conversationId);
    if (missed === null && recoveries.isOver(recovery, serverNow())) whole.set(`${recoveryId}:${outbox._id}`, true);
    return missed;
  };

  /**
   * True if the conversation was erased. Its deliveries may still have texts, because these are removed some time
   * later.
   */
  const isOfErased = async (
    delivery: Pick<StoredDelivery, 'conversationId' | 'assistantId' | 'event'>,
  ): Promise<boolean> => {
    const { conversationId, assistantId } = delivery;
    if (conversationId === null || tellsOfErasure(delivery)) return false;
    return (await conversations.findHead(conversationId, assistantId)) === null;
  };

  /**
   * Claims and sends a missed event again. The number of the redelivery is part of the id of its record, so only one
   * process can insert it.
   */
  const sendMissed = async (missed: Missed, { at, endpoint }: Reading, slot: Slot): Promise<Sent> => {
    const { delivery, body, number } = missed;
    const target = endpoint && targetOf(endpoint, at);
    if (!endpoint?.recovery || !target || !breaker.tryAcquire(endpoint._id)) return 'foreign';
    const { url, recovery } = endpoint;
    const claim = claimAgain(delivery, { url, body });
    const again = { resend: number, recoveryId: recovery.recoveryId };
    const span = openSpan(claim, true);
    return within(span, claimAndSend({ claim, again, target }, slot, span));
  };

  /**
   * Looks whether a stream missed something. Thousands of streams may look, and wait for it without their readings. So
   * the reading is one of this look.
   */
  const lookForMissed = async (
    held: Held,
    { key, endpointId, assistantId }: Waiting,
  ): Promise<'missed' | 'more' | { reading: Reading | null }> => {
    const slot = await looks.acquire(assistantId, { onWait: () => letGo(held) });
    try {
      const reading = slot && (held.reading ?? (await read(key, endpointId)));
      if (!reading || nextOf(reading, endpointId).kind !== 'recover') return { reading };
      const missed = await findMissed(reading);
      if (missed === null) return { reading: { ...reading, nothingMissed: true } };
      if (missed === 'in flight') return { reading: null };
      return missed === 'more' ? missed : 'missed';
    } finally {
      slot?.release();
    }
  };

  /** Sends the next missed event of a stream, in one of the slots that recoveries may use. */
  const recover = async (held: Held, waiting: Waiting): Promise<Reading | null> => {
    const { key, endpointId, assistantId, asked } = waiting;
    let looked: Awaited<ReturnType<typeof lookForMissed>> = 'more';
    while (looked === 'more') looked = await lookForMissed(held, waiting);
    if (looked !== 'missed') return looked.reading;
    letGo(held);
    const tenant = assistantId;
    const share = await recovering.acquire(endpointId, { tenant });
    const slot = share && (await slots.acquire(asked, { tenant }));
    try {
      const reading = slot && (await read(key, endpointId));
      const next = reading && nextOf(reading, endpointId);
      if (!slot || !reading || next?.kind !== 'recover') return reading;
      // Looked up again, because the wait may have been long.
      const still = await findMissed(reading);
      if (still === null) return { ...reading, nothingMissed: true };
      if (still === 'more') return reading;
      if (still === 'in flight' || (await sendMissed(still, reading, slot)) === 'foreign') return null;
    } finally {
      slot?.release();
      share?.release();
    }
    return read(key, endpointId);
  };

  /** Sends the first pending event in a slot, which may be released early. */
  const sendInSlot = async (
    held: Held,
    waiting: Waiting,
    slot: Slot,
  ): Promise<{ reading: Reading | null; sent?: Ended }> => {
    const reading = await readInSlot(held, waiting, slot);
    const next = reading && nextOf(reading, waiting.endpointId);
    if (!reading || next?.kind !== 'send') return { reading };
    const how = await sendHead(reading, next, slot);
    return { reading, sent: { event: next.event, how } };
  };

  /**
   * Ends what must not be sent. A stream may have hundreds of such events, and all streams of an endpoint have them at
   * once when it is disabled. So only a few streams do this at once, and a waiting stream keeps no events in memory.
   */
  const endUnwanted = async ({ key, endpointId, assistantId }: Waiting): Promise<Reading | null> => {
    const slot = await endings.acquire(assistantId);
    try {
      const reading = slot && (await readForEnding(key, endpointId));
      if (!reading || nextOf(reading, endpointId).kind !== 'end') return reading;
      return await readAfter(reading, endpointId, () => endUndeliverable(reading, endpointId));
    } finally {
      slot?.release();
    }
  };

  /**
   * Handles the first pending event and returns the next reading. Returns null if the stream is empty or paused, if no
   * slot is free, or if another process sends the event.
   */
  const step = async (held: Held, { kind, waiting }: Step): Promise<Reading | null> => {
    const { endpointId, assistantId, asked } = waiting;
    if (kind === 'stop') return null;
    if (kind === 'recover') return recover(held, waiting);
    if (kind === 'end') {
      letGo(held);
      return endUnwanted(waiting);
    }
    const slot = await slots.acquire(asked, { tenant: assistantId, onWait: () => letGo(held) });
    if (!slot) return null;
    const { reading, sent } = await sendInSlot(held, waiting, slot).finally(slot.release);
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
  const sendQueued = async ({ delivery, token }: ClaimedQueued, { at, endpoint, slot, isErased }: ForQueued) => {
    const { _id: deliveryId, body, createdAt, redelivery } = delivery;
    const end = async (errorKind: ErrorKind): Promise<void> => {
      await deliveries.recordOutcome(deliveryId, token, neverSent(errorKind));
      dispatch.logEnd(delivery, neverSent(errorKind));
    };
    if (!endpoint) return end('endpoint_removed');
    if (!body || isErased) return end('erased');
    if (tellsOfErasure(delivery) && !endpoint.enabled) return end('endpoint_disabled');
    if (serverNow() - createdAt.getTime() > eventMaxAgeMs) return end('expired');
    const target = targetOf(endpoint, at);
    if (!target) return end('internal');
    const span = openSpan(delivery, true);
    const own = { deliveryId, token, redelivery, queued: true, span };
    const released = async (): Promise<void> => void (await deliveries.release(deliveryId, token, own));
    const sent = async (): Promise<void> => void (await dispatch.dispatch({ ...delivery, body }, own, target, slot));
    await within(span, isFresh(target) ? sent() : released());
  };

  return {
    deliverStream: async (key, endpointId, given) => {
      let at = given.reading?.at ?? performance.now();
      const held: Held = { reading: await open(key, endpointId, given) };
      while (held.reading) {
        ({ at } = held.reading);
        const next = stepOf(held.reading, endpointId);
        held.reading = forNextStep(held.reading, endpointId);
        held.reading = await step(held, next);
      }
      return at;
    },

    withoutStopped: async (heads) => {
      const ids = endpointsOf(heads);
      const areStopped = await Promise.all(ids.map((endpointId) => isStopped(heads, endpointId)));
      return ids.filter((_, nth) => !areStopped[nth]);
    },

    deliverQueued: async (deliveryId) => {
      const queued = await deliveries.readQueued(deliveryId);
      if (queued?.outcome !== 'queued') return;
      const { endpointId, assistantId } = queued;
      const asked = askedOf(endpointId, await endpoints.readForSending(endpointId));
      const slot = await slots.acquire(asked, { tenant: assistantId });
      if (!slot) return;
      try {
        const at = performance.now();
        const endpoint = await endpoints.readForSending(endpointId);
        // An automatic event waits while its endpoint is paused, like every event. What a person asked for does not
        // wait.
        const isAutomatic = tellsOfErasure(queued) && endpoint?.enabled === true;
        if (isAutomatic && isHeld(endpoint)) return;
        const isErased = await isOfErased(queued);
        const claimed = await deliveries.claimQueued(deliveryId);
        if (claimed) await sendQueued(claimed, { at, endpoint, slot, isErased });
      } finally {
        slot.release();
      }
    },
  };
};
