import { DELIVERIES_QUEUE, type WakeUpJob } from '../../src/events/queue.ts';
import type { Logger } from '../../src/platform/logger.ts';
import { openQueues } from '../../src/platform/queue.ts';
import type { Service } from '../../src/service.ts';
import { TURNS_QUEUE, type TurnsJob } from '../../src/turns/queue.ts';

/**
 * The queues as such: to look into, and to wake deliveries by. The service's own wake-ups are not waited for, and a
 * command that ends at once would take them with it; the sweeps would bring them back, seconds later.
 */
export const openQueueHandles = ({ redis, partitions }: Pick<Service, 'redis' | 'partitions'>, logger: Logger) => {
  const turns = openQueues<TurnsJob>(TURNS_QUEUE, { redis, partitions }, logger);
  const deliveries = openQueues<WakeUpJob>(DELIVERIES_QUEUE, { redis, partitions }, logger);
  return {
    turns,
    deliveries,
    wakeConversation: async (key: string): Promise<void> => {
      await deliveries.of(key).add('wake', { conversations: [key], deliveries: [] });
    },
    wakeDelivery: async (deliveryId: string): Promise<void> => {
      await deliveries.of(deliveryId).add('wake', { conversations: [], deliveries: [deliveryId] });
    },
    close: async (): Promise<void> => {
      await Promise.all([turns.close(), deliveries.close()]);
    },
  };
};

export type Queues = ReturnType<typeof openQueueHandles>;
