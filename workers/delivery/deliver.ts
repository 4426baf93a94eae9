import type { OutboxEvent } from '../../src/conversations/conversation.ts';
import { claimOf, createEndUnsent, unsendableOf } from '../../src/deliveries/unsendable.ts';
import { lineOf, type Outbox } from '../../src/deliveries/outbox.ts';
import type { Claim } from '../../src/deliveries/claims.ts';
import { type ErrorKind, isFinal, neverSent, type StoredDelivery } from '../../src/deliveries/delivery.ts';
import { isPaused, type StoredEndpoint } from '../../src/webhooks/endpoint.ts';
import type { EndpointStore } from '../../src/webhooks/endpoint-store.ts';
import type { DeliveryStore } from '../../src/deliveries/store.ts';
import { serverNow } from '../../src/platform/clock.ts';
import type { Logger } from '../../src/platform/logger.ts';
import { isConnectionFailure } from '../../src/platform/mongo.ts';
import type { Breaker } from './breaker.ts';
import type { Aim, Dispatch } from './dispatch.ts';
import type { Slots } from '../../src/platform/slots.ts';

/** Older than this, what was read may no longer hold: no claim, no connecting. */
const READING_HOLDS_MS = 2_000;

type Dependencies = {
  endpoints: EndpointStore;
  deliveries: DeliveryStore;
  dispatch: Dispatch;
  breaker: Breaker;
  slots: Slots;
  eventMaxAgeMs: number;
  logger: Logger;
};

/** An outbox, and when it was read: monotonic, taken before the reading. */
export type OutboxReading = { at: number; outbox: Outbox };
type Reading = OutboxReading & { endpoint: StoredEndpoint | null };

/** What a line's reading asks for. */
type Next = { kind: 'end' } | { kind: 'send'; event: OutboxEvent; endpoint: StoredEndpoint } | { kind: 'rest' };

/** How a try ended: with an outcome, as unsent as before, or in other hands. */
type Sent = 'ended' | 'untried' | 'not ours';
type Ended = { event: OutboxEvent; how: Sent };
type ClaimedQueued = { delivery: StoredDelivery; token: string };

const isFresh = ({ at }: { at: number }): boolean => performance.now() - at < READING_HOLDS_MS;

/**
 * One line at a time: the events of a conversation to an endpoint, in order, each started after the one before has ended.
 * The claim is the only licence to send; nothing here runs a second time for a claim that was won (contract §6).
 */
export const createDeliver = (dependencies: Dependencies) => {
  const { endpoints, deliveries, dispatch, breaker, slots, eventMaxAgeMs, logger } = dependencies;
  const { outbox: outboxes } = deliveries;
  const endUnsent = createEndUnsent({ deliveries, eventMaxAgeMs, onEnded: dispatch.logEnd });

  const read = async (key: string, endpointId: string): Promise<Reading | null> => {
    const at = performance.now();
    const [outbox, endpoint] = await Promise.all([outboxes.read(key), endpoints.readForSending(endpointId)]);
    return outbox && { at, outbox, endpoint };
  };

  /**
   * The line's next event is chosen from what is read after the write that took the last one off. The endpoint is read at
   * once where more was in line before, else only where something is by then.
   */
  const readAfter = async (
    before: Reading,
    endpointId: string,
    write: () => Promise<Outbox | null>,
  ): Promise<Reading | null> => {
    const at = performance.now();
    const more = lineOf(before.outbox, endpointId).length > 1;
    const [outbox, early] = await Promise.all([write(), more ? endpoints.readForSending(endpointId) : null]);
    if (!outbox) return null;
    const isDone = lineOf(outbox, endpointId).length === 0;
    return { at, outbox, endpoint: early ?? (isDone ? null : await endpoints.readForSending(endpointId)) };
  };

  const nextOf = ({ outbox, endpoint }: Reading, endpointId: string): Next => {
    const line = lineOf(outbox, endpointId);
    const [event] = line;
    if (!event) return { kind: 'rest' };
    if (unsendableOf(line, { endpoint, eventMaxAgeMs }).length > 0) return { kind: 'end' };
    if (!endpoint || isPaused(endpoint, serverNow()) || breaker.isResting(endpointId)) return { kind: 'rest' };
    return { kind: 'send', event, endpoint };
  };

  /** Null where the secrets do not open here: another process may have the key, so nothing is claimed. */
  const aimAt = (endpoint: StoredEndpoint, at: number): Aim | null => {
    try {
      return { at, endpoint, secrets: endpoints.openSecrets(endpoint, serverNow()) };
    } catch (cause) {
      logger.error({ err: cause, endpointId: endpoint._id }, 'the secrets of an endpoint cannot be opened');
      breaker.hold(endpoint._id);
      return null;
    }
  };

  /** An event that no record can hold would be tried for ever, and what stands behind it would wait for it. */
  const endUnstorable = async (claim: Claim, cause: unknown): Promise<'ended'> => {
    const { eventId, endpointId } = claim;
    logger.error({ err: cause, eventId, endpointId }, 'an event could not be claimed');
    const exchange = neverSent('internal');
    const { won } = await deliveries.claimEnded({ ...claim, body: '' }, exchange);
    if (won) dispatch.logEnd(claim, exchange);
    return 'ended';
  };

  /** Claims and sends. Every way out without a send gives the breaker's permit back. */
  const sendHead = async ({ at, outbox }: Reading, event: OutboxEvent, endpoint: StoredEndpoint): Promise<Sent> => {
    const endpointId = endpoint._id;
    const aim = aimAt(endpoint, at);
    if (!aim || !breaker.mayStart(endpointId)) return 'not ours';
    const claim = claimOf(outbox, event, { endpointId, url: endpoint.url });
    const claimed = await deliveries.claim(claim).catch((cause: unknown) => {
      breaker.giveBack(endpointId);
      if (isConnectionFailure(cause)) throw cause;
      return endUnstorable(claim, cause);
    });
    if (claimed === 'ended') return 'ended';
    if (!claimed.won) {
      breaker.giveBack(endpointId);
      // Ended by somebody: take it off the line. Being sent, or not known: leave the line to whoever has it.
      return claimed.found && isFinal(claimed.found.outcome) ? 'ended' : 'not ours';
    }
    const held = { ...claimed, redelivery: false, queued: false };
    if (isFresh(aim)) return dispatch.dispatch(claim, held, aim);
    // The claim took too long to be sure of what was read before it.
    breaker.giveBack(endpointId);
    return (await deliveries.giveBack(held.deliveryId, held.token, held)) ? 'untried' : 'ended';
  };

  /** Under a slot. Where the place in line was long, all is read again before anything is decided. */
  const sendInSlot = async (
    before: Reading,
    endpointId: string,
  ): Promise<{ reading: Reading | null; sent?: Ended }> => {
    const reading = isFresh(before) ? before : await read(before.outbox._id, endpointId);
    const next = reading && nextOf(reading, endpointId);
    if (next?.kind !== 'send') return { reading };
    const how = await sendHead(reading as Reading, next.event, next.endpoint);
    return { reading, sent: { event: next.event, how } };
  };

  /**
   * What ends here is lost for good, and the endpoint may have been read before it was switched on, the line after. So it
   * is asked once more.
   */
  const endHead = async (before: Reading, endpointId: string): Promise<Reading | null> => {
    const reading = { ...before, endpoint: await endpoints.readForSending(endpointId) };
    if (nextOf(reading, endpointId).kind !== 'end') return reading;
    return readAfter(reading, endpointId, () => endUnsent(reading, endpointId));
  };

  /** The next reading; null where the line rests: empty, paused, turned away for now, or in other hands. */
  const step = async (before: Reading, endpointId: string): Promise<Reading | null> => {
    const next = nextOf(before, endpointId);
    if (next.kind === 'rest') return null;
    if (next.kind === 'end') return endHead(before, endpointId);
    if (!(await slots.enter(endpointId))) return null;
    const { reading, sent } = await sendInSlot(before, endpointId).finally(() => slots.leave(endpointId));
    if (!reading || !sent) return reading;
    if (sent.how === 'not ours') return null;
    if (sent.how === 'untried') return read(reading.outbox._id, endpointId);
    return readAfter(reading, endpointId, () => outboxes.pullEnded(reading.outbox, endpointId, [sent.event]));
  };

  /** A test or a resend once claimed; what ends here unsent was never tried. */
  const sendQueued = async ({ delivery, token }: ClaimedQueued, endpoint: StoredEndpoint | null, at: number) => {
    const { _id: deliveryId, body, createdAt, redelivery } = delivery;
    const end = async (errorKind: ErrorKind): Promise<void> => {
      await deliveries.recordOutcome(deliveryId, token, neverSent(errorKind));
      dispatch.logEnd(delivery, neverSent(errorKind));
    };
    if (!endpoint) return end('endpoint_removed');
    if (!body) return end('erased');
    if (serverNow() - createdAt.getTime() > eventMaxAgeMs) return end('expired');
    const aim = aimAt(endpoint, at);
    if (!aim) return end('internal');
    const held = { deliveryId, token, redelivery, queued: true };
    if (!isFresh(aim)) return void (await deliveries.giveBack(deliveryId, token, held));
    await dispatch.dispatch({ ...delivery, body }, held, aim);
  };

  return {
    /**
     * Works a line off until it rests, beginning with what was just read if anything was. Answers when its last reading
     * began: who asked for the line before that need not ask again.
     */
    deliverLine: async (key: string, endpointId: string, first?: OutboxReading): Promise<number> => {
      let at = first?.at ?? performance.now();
      let reading = first
        ? { ...first, endpoint: await endpoints.readForSending(endpointId) }
        : await read(key, endpointId);
      while (reading) {
        ({ at } = reading);
        reading = await step(reading, endpointId);
      }
      return at;
    },

    /** Ends what is over the bound in a line whose head is being sent, which may take a while. */
    trimLine: async ({ outbox }: OutboxReading, endpointId: string): Promise<void> => {
      await endUnsent({ outbox, endpoint: await endpoints.readForSending(endpointId) }, endpointId);
    },

    /** A test or a resend: outside the order and the pauses, claimed by compare-and-set. */
    deliverQueued: async (deliveryId: string): Promise<void> => {
      const queued = (await deliveries.readByIds([deliveryId])).get(deliveryId);
      if (queued?.outcome !== 'queued' || !(await slots.enter(queued.endpointId))) return;
      try {
        const at = performance.now();
        const endpoint = await endpoints.readForSending(queued.endpointId);
        const claimed = await deliveries.claimQueued(deliveryId);
        if (claimed) await sendQueued(claimed, endpoint, at);
      } finally {
        slots.leave(queued.endpointId);
      }
    },
  };
};

export type Deliver = ReturnType<typeof createDeliver>;
