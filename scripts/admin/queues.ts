import { DELIVERIES_QUEUE, type WakeUpJob } from '../../src/deliveries/queue.ts';
import { KNOWLEDGE_QUEUE, type KnowledgeJob } from '../../src/assistants/semantic-state.ts';
import type { Logger } from '../../src/process/logger.ts';
import { openQueues } from '../../src/redis/queue.ts';
import type { Service } from '../../src/service.ts';
import { SOURCES_QUEUE, type SourceJob } from '../../src/sources/queue.ts';
import { TURNS_QUEUE, type TurnsJob } from '../../src/turns/queue.ts';

/** Opens the queues for reading their state. */
export const openQueueHandles = ({ redis, partitions }: Pick<Service, 'redis' | 'partitions'>, logger: Logger) => {
  const turns = openQueues<TurnsJob>(TURNS_QUEUE, { redis, partitions }, logger);
  const deliveries = openQueues<WakeUpJob>(DELIVERIES_QUEUE, { redis, partitions }, logger);
  const knowledge = openQueues<KnowledgeJob>(KNOWLEDGE_QUEUE, { redis, partitions }, logger);
  const sources = openQueues<SourceJob>(SOURCES_QUEUE, { redis, partitions }, logger);
  return {
    turns,
    deliveries,
    knowledge,
    sources,
    close: async (): Promise<void> => {
      await Promise.all([turns, deliveries, knowledge, sources].map((one) => one.close()));
    },
  };
};

export type Queues = ReturnType<typeof openQueueHandles>;
