import type { Connection } from 'mongoose';
import { createKnowledgeQueue, KNOWLEDGE_QUEUE, type KnowledgeJob } from './assistants/knowledge-queue.ts';
import { takeByOf } from './assistants/assistant.ts';
import { createAssistantStore } from './assistants/store.ts';
import { createConversationStore } from './conversations/store.ts';
import { createEndpointStore } from './webhooks/endpoint-store.ts';
import { createInsights } from './insights/store.ts';
import { createDeliveryQueue, DELIVERIES_QUEUE, type WakeUpJob } from './deliveries/queue.ts';
import { createDeliveryStore } from './deliveries/store.ts';
import { createWakeStreams } from './deliveries/wake-streams.ts';
import { createInboxRecords } from './inbox/records.ts';
import type { Config } from './platform/config.ts';
import { newToken } from './platform/ids.ts';
import type { Lifecycle } from './platform/lifecycle.ts';
import type { Logger } from './platform/logger.ts';
import { buildIndexes, type Indexed, openMongo } from './platform/mongo.ts';
import { watchMongo } from './platform/mongo-silence.ts';
import { openQueues } from './platform/queue.ts';
import { closeRedis, openRedis, type RedisClient } from './platform/redis.ts';
import { createPartitions, type Partitions } from './platform/redis-partitions.ts';
import type { RedisRole } from './platform/redis-role.ts';
import { createVault } from './platform/vault.ts';
import { dropRetiredIndexes } from './retired-indexes.ts';
import { createDeliveredReplies } from './turns/delivered-replies.ts';
import { createIdempotencyKeys } from './turns/idempotency-keys.ts';
import { createTurnLeases } from './turns/leases.ts';
import { createTurnQueue, TURNS_QUEUE, type TurnsJob } from './turns/queue.ts';

type Options = {
  config: Config;
  logger: Logger;
  lifecycle: Lifecycle;
  redisRole: Exclude<RedisRole, 'subscriber'>;
  /**
   * How long to wait at the start until MongoDB and Redis answer. A command in a terminal waits for a shorter time than
   * a server.
   */
  startWithinMs?: number;
};

/** Opens what every process shares: connections, stores on MongoDB, and queues on Redis. The lifecycle closes it. */
export const openService = async ({ config, logger, lifecycle, redisRole, startWithinMs: timeoutMs }: Options) => {
  const { draining } = lifecycle;
  const openings = [
    openMongo({ url: config.MONGODB_URL, timeoutMs }, logger),
    openRedis({ url: config.REDIS_URL, role: redisRole, timeoutMs, draining }, logger),
  ] as const;
  // If one connection fails to open, the other is first registered for closing. Only then is the failure thrown.
  const [openedMongo, openedRedis] = await Promise.allSettled(openings);
  if (openedMongo.status === 'fulfilled') lifecycle.add('mongodb', openedMongo.value, (opened) => opened.close());
  if (openedRedis.status === 'fulfilled') lifecycle.add('redis', openedRedis.value, closeRedis);
  const [mongo, redis]: [Connection, RedisClient] = await Promise.all(openings);

  const ping = async (): Promise<unknown> => mongo.db?.admin().command({ ping: 1 });
  const onAnswer = (notify: () => void): void => void mongo.getClient().on('connectionCheckedIn', notify);
  const mongoWatch = lifecycle.add('mongodb watch', watchMongo({ ping, onAnswer }), (opened) => opened.close());

  const partitions: Partitions = createPartitions(config.REDIS_PREFIX, config.PARTITIONS);
  const openQueue = <Data>(name: string) => {
    const queue = openQueues<Data>(name, { redis, partitions }, logger);
    return lifecycle.add(`queue ${name}`, queue, (opened) => opened.close());
  };
  const turnQueue = createTurnQueue(openQueue<TurnsJob>(TURNS_QUEUE));
  const deliveryQueue = createDeliveryQueue(openQueue<WakeUpJob>(DELIVERIES_QUEUE));
  const knowledgeQueue = createKnowledgeQueue(openQueue<KnowledgeJob>(KNOWLEDGE_QUEUE));

  const vault = createVault({ keys: config.ENCRYPTION_KEY });
  const assistants = createAssistantStore({ connection: mongo, vault, onKnowledgeChanged: knowledgeQueue.wake });
  const deliveries = createDeliveryStore({
    connection: mongo,
    worker: newToken(),
    retentionDays: config.DELIVERY_RETENTION_DAYS,
  });
  const endpoints = createEndpointStore({
    connection: mongo,
    vault,
    guard: { allowPrivate: config.WEBHOOK_ALLOW_PRIVATE },
    onChanged: createWakeStreams({ outbox: deliveries.outbox, deliveryQueue }),
  });

  const leases = lifecycle.add('turn leases', createTurnLeases(redis, partitions), (opened) => opened.close());
  const deliveredReplies = createDeliveredReplies(redis, partitions);
  const idempotencyKeys = createIdempotencyKeys(mongo);
  const inboxRecords = createInboxRecords(mongo);
  const insights = createInsights(mongo);
  const conversations = createConversationStore({
    connection: mongo,
    receivers: endpoints.receivers,
    wakeDeliveries: deliveryQueue.wake,
    findDelivered: deliveredReplies.find,
    eraseElsewhere: async (conversationId, until) => {
      await idempotencyKeys.erase(conversationId, until);
      await inboxRecords.eraseConversation(conversationId, until);
      await deliveries.eraseConversation(conversationId, until);
      await insights.eraseConversations([conversationId]);
    },
    findTakeBy: async (assistantId, at) => {
      const assistant = await assistants.findAssistant(assistantId);
      return assistant && takeByOf(assistant, at);
    },
    beforeWriting: mongoWatch.beforeWriting,
    draining,
  });
  const stores = [assistants, endpoints, deliveries, conversations, idempotencyKeys, inboxRecords, insights];
  await buildIndexes(stores.flatMap(({ models }): Indexed[] => models));
  await dropRetiredIndexes(mongo, logger);

  return {
    mongo,
    mongoWatch,
    redis,
    partitions,
    leases,
    deliveredReplies,
    idempotencyKeys,
    vault,
    assistants,
    endpoints,
    deliveries,
    conversations,
    inboxRecords,
    insights,
    turnQueue,
    deliveryQueue,
  };
};

export type Service = Awaited<ReturnType<typeof openService>>;
