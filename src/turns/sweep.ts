import { serverNow } from '../process/clock.ts';
import type { Assistant } from '../assistants/assistant.ts';
import { notTakenText } from '../assistants/opening-hours.ts';
import type { ConversationStore } from '../conversations/store.ts';
import type { TakeByEnd } from '../conversations/transitions.ts';
import type { Logger } from '../process/logger.ts';
import type { TurnLeases } from './leases.ts';
import type { TurnQueue } from './queue.ts';
import type { Timing } from '../process/time-limits.ts';

const ENDED_PER_SWEEP = 200;

type Dependencies = {
  conversations: Pick<ConversationStore, 'findNotTaken' | 'transitions'>;
  findAssistant: (assistantId: string) => Promise<Assistant | null>;
  /** Called when operators are reminded. */
  onReminded: (assistantId: string) => Promise<void>;
  logger: Logger;
};

/** If the time limit was switched off meanwhile, the conversation stays escalated, and nobody is reminded. */
const endOf = (assistant: Assistant | null, language: string): TakeByEnd => {
  if (!assistant || assistant.takeWithinMinutes === null) return { how: 'stay' };
  const { ifNotTaken: how } = assistant;
  return how === 'hand_back' ? { how, said: notTakenText(language) } : { how };
};

/**
 * Ends the take-by time of escalations that nobody took: a reminder, a hand-back, or nothing (docs/design.md, Sweeps).
 */
export const createNotTakenSweep =
  ({ conversations, findAssistant, onReminded, logger }: Dependencies) =>
  async (): Promise<void> => {
    for (const { conversationId, assistantId, language } of await conversations.findNotTaken(ENDED_PER_SWEEP)) {
      const end = endOf(await findAssistant(assistantId), language);
      try {
        const { changed } = await conversations.transitions.endTakeBy({ conversationId }, end);
        if (changed && end.how === 'remind') await onReminded(assistantId);
        if (changed) logger.info({ conversationId, assistantId, how: end.how }, 'an escalation was not taken in time');
      } catch (cause) {
        // One conversation that was erased or changes too fast must not delay the others.
        logger.warn({ err: cause, conversationId }, 'the take-by time of an escalation was not ended');
      }
    }
  };

const HEADS_PER_SWEEP = 1_000;

type SweepDependencies = {
  conversations: Pick<ConversationStore, 'findStaleHeads' | 'renewHeads'>;
  leases: TurnLeases;
  turnQueue: Pick<TurnQueue, 'byPartition' | 'enqueue'>;
  timing: Timing;
};

/**
 * Adds a job for each head whose job was lost, because Redis was wiped or a worker was killed between two steps
 * (docs/design.md, Sweeps).
 */
export const createTurnSweep =
  ({ conversations, leases, turnQueue, timing }: SweepDependencies) =>
  async (): Promise<void> => {
    const heads = await conversations.findStaleHeads(timing.turnStaleMs, HEADS_PER_SWEEP);
    // `byPartition` leaves out unavailable partitions: no job can be added there, so their heads must not be renewed.
    for (const { items, oldestWaitingAt } of await turnQueue.byPartition(heads)) {
      const leased = await leases.findLeased(items);
      const now = serverNow();
      const lost = items.filter(({ turnId, queuedAt }) => {
        if (leased.has(turnId)) return false;
        // Queues are first in, first out. While an older job waits, the job of this head may be behind it. Then it does not
        // count as lost yet.
        const mayBeQueued = oldestWaitingAt !== null && oldestWaitingAt <= queuedAt.getTime() + timing.turnStaleMs;
        return !mayBeQueued || now - queuedAt.getTime() > timing.turnJobReplacedAfterMs;
      });
      await conversations.renewHeads(lost);
      for (const { key, turnId } of lost) turnQueue.enqueue({ key, turnId });
    }
  };
