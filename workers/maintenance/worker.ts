import type { Embedder } from '@parley/understanding';
import { createChannelCalls } from '../../src/assistants/channel.ts';
import { KNOWLEDGE_QUEUE } from '../../src/assistants/knowledge/semantic-state.ts';
import { startVectorUpdates } from '../../src/assistants/knowledge/update-vectors.ts';
import type { OpeningEmbedder } from '../../src/embedder.ts';
import { DAY_MS, serverNow } from '../../src/platform/process/clock.ts';
import { newToken } from '../../src/platform/process/ids.ts';
import { startSweeper } from '../../src/platform/process/sweeper.ts';
import type { Module } from '../../src/service.ts';
import { openQueueWorkers } from '../../src/worker-process.ts';

const PROJECT_EVERY_MS = 2_000;
const COUNT_EVERY_MS = 10_000;
/** A round erases at most this many old conversations of one assistant. */
const ERASED_OF_ONE = 200;

/** Purges erased conversations again, after a minute and after a day. */
const createPurge =
  ({ service, logger, lifecycle }: Module) =>
  async (): Promise<void> => {
    let [purged, some] = [0, 1];
    while (some > 0 && !lifecycle.draining.aborted) {
      some = await service.aside.conversations.purgeAgain();
      purged += some;
    }
    if (purged > 0) logger.info({ purged }, 'erased conversations were purged again');
  };

/** Settles what gone processes have reserved of quotas. */
const createSettling = ({ service, logger }: Module) => {
  const { allowances, conversations } = service.aside;
  return async (): Promise<void> => {
    const settled = await allowances.settleLost(async ({ turnId, messageId }) => {
      const found = await conversations.findTurn(turnId);
      return found?.turn.messageId === messageId;
    });
    if (settled > 0) logger.info({ settled }, 'turns that a gone process had reserved were settled');
  };
};

/** Erases conversations whose days are over. */
const createErasing = ({ service, config, logger }: Module) => {
  const { assistants, conversations } = service.aside;
  const channelCalls = createChannelCalls(service.redis, config.REDIS_PREFIX);
  return async (): Promise<void> => {
    for (const { assistantId, keepDays } of await assistants.listKeepDays()) {
      const old = { assistantId, since: new Date(serverNow() - keepDays * DAY_MS), most: ERASED_OF_ONE };
      const forget = ({ sessionId }: { sessionId: string }): void => channelCalls.forget(assistantId, sessionId);
      try {
        const erased = await conversations.eraseUnchanged(old, forget);
        if (erased > 0) logger.info({ assistantId, keepDays, erased }, 'conversations were erased after their days');
      } catch (cause) {
        // A failure for one assistant must not delay the conversations of others.
        logger.warn({ err: cause, assistantId }, 'a conversation was not erased after its days');
      }
    }
  };
};

/** The projection: search words, figures and misses. All processes try, and one of them is the leader. */
const openProjection = (embedder: Embedder, { service, logger, lifecycle }: Module) => {
  const { insights, assistants, conversations, deliveries } = service.aside;
  const projection = insights.openProjection({
    token: newToken(),
    changed: conversations.changed,
    listAssistantIds: assistants.listAssistantIds,
    embedding: {
      // Embedded like a visitor's question, but after the questions of turns.
      embed: (texts, holder) => embedder.embed(texts, 'query', { holder, priority: 'background' }),
      model: embedder.model,
    },
    draining: lifecycle.draining,
    logger,
  });
  // The lease expires by itself, so an unavailable MongoDB must not fail the stop.
  lifecycle.add('lead of the projection', projection, ({ release }) => release().catch(() => undefined));
  let countedAt = Number.NEGATIVE_INFINITY;
  let isLeader = false;
  return {
    project: async (): Promise<void> => {
      isLeader = await projection.round();
      if (!isLeader || performance.now() - countedAt < COUNT_EVERY_MS) return;
      const ids = await assistants.listAssistantIds();
      const isComplete = await insights.deliveryFigures.countEnded(ids, deliveries.countHourlyOutcomes, {
        draining: lifecycle.draining,
        logger,
      });
      if (isComplete) countedAt = performance.now();
    },
    groupMisses: async (): Promise<void> => (isLeader ? projection.groupMisses() : undefined),
  };
};

/**
 * The module for the work in the background that nobody waits for (docs/design.md, Maintenance). Every process that opens
 * it has its own timers: a schedule in Redis is lost with Redis, and a process with a wrong clock can postpone it.
 * Deliveries and idempotency keys need no purge: they expire through MongoDB's TTL indexes.
 */
export const maintain = async (module: Module, { embedder: beginning }: { embedder: OpeningEmbedder }) => {
  const { service, config, logger, lifecycle } = module;
  const { timing } = config;
  const embedder = await beginning.opened;
  const store = service.aside.assistants;
  const process = await startVectorUpdates({ store, embedder, timing, logger, lifecycle });
  await openQueueWorkers({ queue: KNOWLEDGE_QUEUE, concurrency: 1, process }, module);

  const { project, groupMisses } = openProjection(embedder, module);
  const duties = [
    ['projection', project, PROJECT_EVERY_MS],
    ['misses', groupMisses, PROJECT_EVERY_MS],
    ['purge', createPurge(module), timing.maintenanceEveryMs],
    ['question sets', () => service.aside.questionSets.purge(lifecycle.draining), timing.maintenanceEveryMs],
    ['quotas', createSettling(module), timing.maintenanceEveryMs],
    ['old conversations', createErasing(module), timing.maintenanceEveryMs],
  ] as const;
  const sweepers = duties.map(([name, round, everyMs]) => startSweeper(name, round, { everyMs, logger }));
  lifecycle.add('maintenance', sweepers, (all) => Promise.all(all.map(({ stop }) => stop())));
};
