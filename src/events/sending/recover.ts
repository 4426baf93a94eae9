import type { Woken } from '../../conversations/outbox.ts';
import type { ConversationStore } from '../../conversations/store.ts';
import type { DeliveryQueue } from '../queue.ts';
import type { Recoveries, StoredRecovery } from '../recoveries.ts';
import type { DeliveryStore } from '../store.ts';
import { newToken } from '../../platform/process/ids.ts';
import type { Logger } from '../../platform/process/logger.ts';
import { mapAtMost } from '../../platform/process/slots.ts';
import type { Timing } from '../../platform/process/time-limits.ts';
import type { EndpointStore } from '../endpoints.ts';
import { createLru } from '../../platform/process/lru.ts';

/**
 * How many recoveries a worker drives at once, from how many due ones it chooses, and for how many assistants it
 * remembers when they had their last turn.
 */
const DRIVEN_MAX = 4;
const LOOKED_AT = 200;
const SERVED_MAX = 10_000;
/** How often the lease is renewed while its conversations are sent. */
const RENEW_MS = 3_000;
/** How many missed deliveries are read at once, and how many of their conversations are sent at once. */
const STEP = 200;
const CONVERSATIONS_AT_ONCE = 20;

type Dependencies = {
  recoveries: Recoveries;
  conversations: Pick<ConversationStore, 'findHead'>;
  deliveries: Pick<DeliveryStore, 'queueMissed'>;
  deliveryQueue: Pick<DeliveryQueue, 'wakeDelivery'>;
  endpoints: Pick<EndpointStore, 'readForSending'>;
  /** Runs a delivery stream. Resolves when it has nothing more to send now. */
  runStream: (conversation: Woken, endpointId: string) => Promise<void>;
  timing: Pick<Timing, 'recoveryTurnMs'>;
  logger: Logger;
};

/**
 * Drives recoveries, under a lease: walks the range of each, and runs the delivery streams that have missed something.
 * The streams send (deliver.ts), so that the order of each conversation has one owner. If the worker of a recovery is
 * gone, another one continues at the stored position.
 */
export const createDriveRecoveries = (dependencies: Dependencies) => {
  const { recoveries, conversations, deliveries, deliveryQueue, endpoints, runStream, timing, logger } = dependencies;
  const driven = new Map<string, { assistantId: string; running: Promise<void> }>();
  const servedAt = createLru<number>({ most: SERVED_MAX });
  const token = newToken();
  let closing = false;

  /** Sends what is left of an erased conversation: only the event that tells of the erasure. */
  const sendWithoutConversation = async (
    { _id }: StoredRecovery,
    { conversationId, ids, isOver }: { conversationId: string; ids: string[]; isOver: () => boolean },
  ) => {
    let missed = await recoveries.nextMissed(_id, conversationId);
    // Events whose texts the erasure has not removed yet are not sent. They come before the event that tells of it.
    while (missed !== null && missed !== 'in flight') {
      if (missed !== 'more' && missed.delivery.event === 'conversation.erased') break;
      if (isOver()) return;
      if (missed !== 'more') await recoveries.leaveOut(_id, [missed.delivery._id]);
      missed = await recoveries.nextMissed(_id, conversationId);
    }
    if (missed === 'in flight') return;
    if (missed) deliveryQueue.wakeDelivery(await deliveries.queueMissed(missed, _id));
    await recoveries.leaveOut(_id, ids);
  };

  /**
   * Deals with the next deliveries of the range until the turn is over. Returns the position after them, or null if
   * some of them must wait. A stream that is not done by then goes on without a place here: it may be long, and its
   * endpoint slow.
   */
  const step = async (
    recovery: StoredRecovery,
    turn: AbortSignal,
  ): Promise<StoredRecovery['position'] | 'end' | null> => {
    const { _id, assistantId, endpointId, position } = recovery;
    const { missed, isLast } = await recoveries.listMissed(recovery, position, STEP);
    const last = missed.at(-1);
    if (!last) return isLast ? 'end' : null;
    const isOver = (): boolean => closing || turn.aborted;
    const byConversation = [...Map.groupBy(missed, ({ conversationId }) => conversationId)];
    const sent = mapAtMost(CONVERSATIONS_AT_ONCE, byConversation, async ([conversationId, some]) => {
      if (isOver()) return;
      const head = await conversations.findHead(conversationId, assistantId);
      const ids = some.map(({ id }) => id);
      if (head) await runStream({ _id: head._id, assistantId }, endpointId);
      else await sendWithoutConversation(recovery, { conversationId, ids, isOver });
    });
    await Promise.race([sent, new Promise((resolve) => turn.addEventListener('abort', resolve, { once: true }))]);
    const all = await recoveries.areDealtWith(
      _id,
      missed.map(({ id }) => id),
    );
    return all ? { endedOn: last.endedOn, id: last.id } : null;
  };

  /**
   * Walks until the range is done, something must wait, its turn is over, or the recovery is not this worker's any
   * more.
   */
  const drive = async ({ _id }: StoredRecovery): Promise<void> => {
    const turn = AbortSignal.timeout(timing.recoveryTurnMs);
    let position: StoredRecovery['position'];
    while (!closing) {
      const recovery = await recoveries.lease(_id, token, position);
      if (!recovery) return;
      await recoveries.settle(recovery, token);
      if (recovery.state !== 'running') return;
      if (!(await endpoints.readForSending(recovery.endpointId))) {
        await recoveries.finish(recovery, token, 'cancelled');
        continue;
      }
      const renewing = setInterval(() => void recoveries.lease(_id, token, position).catch(() => undefined), RENEW_MS);
      const next = await step(recovery, turn).finally(() => clearInterval(renewing));
      if (next === null) return recoveries.release(_id, token);
      if (next === 'end') await recoveries.finish(recovery, token, 'done');
      else position = next;
      if (position && turn.aborted) {
        await recoveries.lease(_id, token, position);
        break;
      }
    }
    await recoveries.release(_id, token);
  };

  /**
   * An assistant may drive as many recoveries as places remain free, because a slow endpoint with much to send takes a
   * place for its whole turn.
   */
  const hasShare = (assistantId: string): boolean => {
    const own = [...driven.values()].filter((one) => one.assistantId === assistantId).length;
    return own < DRIVEN_MAX - driven.size;
  };

  const start = (recovery: StoredRecovery): void => {
    const { _id: recoveryId, assistantId } = recovery;
    const running = drive(recovery)
      .catch((cause: unknown) => logger.warn({ err: cause, recoveryId }, 'a recovery was interrupted'))
      .finally(() => driven.delete(recoveryId));
    driven.set(recoveryId, { assistantId, running });
    servedAt.set(assistantId, performance.now());
  };

  return {
    /** Takes recoveries that nobody drives. Those of the assistant that has waited longest for a turn go first. */
    look: async (): Promise<void> => {
      if (closing || driven.size >= DRIVEN_MAX) return;
      const due = await recoveries.findDue(LOOKED_AT);
      const lastTurn = ({ assistantId }: StoredRecovery): number => servedAt.get(assistantId) ?? 0;
      for (const one of due.toSorted((one, other) => lastTurn(one) - lastTurn(other)))
        if (hasShare(one.assistantId) && !driven.has(one._id)) start(one);
    },

    /** Stops after the conversations that are being sent. */
    close: async (): Promise<void> => {
      closing = true;
      await Promise.all([...driven.values()].map(({ running }) => running));
    },
  };
};
