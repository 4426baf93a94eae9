import type { Connection } from 'mongoose';
import { type AlertStore, createAlertStore } from './alerts/alert.ts';
import { createWorkerSigns, type WorkerSigns } from './alerts/worker-signs.ts';
import { KNOWLEDGE_QUEUE, type KnowledgeJob } from './assistants/knowledge/semantic-state.ts';
import { type AssistantStore, createAssistantStore } from './assistants/store.ts';
import { createEvaluations, type Evaluations } from './evaluation/evaluations.ts';
import { createQuestionSets, type QuestionSets } from './evaluation/question-sets.ts';
import { createOutboxStore } from './conversations/outbox.ts';
import { type ConversationStore, createConversationStore } from './conversations/store.ts';
import { createEndpointStore, type EndpointStore } from './events/endpoints.ts';
import { createInsights, type Insights } from './insights/store.ts';
import { createDeliveryQueue, DELIVERIES_QUEUE, type DeliveryQueue, type WakeUpJob } from './events/queue.ts';
import { createRecoveries, type Recoveries } from './events/recoveries.ts';
import { createDeliveryStore, type DeliveryStore } from './events/store.ts';
import { createWakeStreams } from './events/sweep.ts';
import { createPassageStore, type PassageStore } from './sources/passages.ts';
import { createReadAssignees, createTakeBy } from './inbox/assignees.ts';
import { createInboxRecords, type InboxRecords } from './inbox/records.ts';
import { createAudit } from './operators/audit.ts';
import { createOperatorStore, type OperatorStore } from './operators/store.ts';
import { newToken } from './platform/process/ids.ts';
import type { Opening } from './platform/process/lifecycle.ts';
import { createSharedMemory, type SharedMemory } from './platform/process/lru.ts';
import { buildIndexes, type Indexed, openMongo } from './platform/mongo/mongo.ts';
import { type MongoWatch, watchMongo } from './platform/mongo/silence.ts';
import {
  createLocalWorkers,
  createPartitions,
  createWake,
  type LocalWorkers,
  openQueues,
  type PartitionedQueue,
  type Partitions,
} from './platform/redis/queue.ts';
import { closeRedis, openRedis, type RedisClient, type RedisRole } from './platform/redis/redis.ts';
import { SOURCES_QUEUE, type SourceJob } from './sources/source.ts';
import { createPassageVectors, type PassageVectors } from './sources/passage-vectors.ts';
import { createSourceRuns, type SourceRuns } from './sources/runs.ts';
import { createSourceStore, type SourceStore } from './sources/store.ts';
import { createVersionedSources } from './sources/versions.ts';
import type { Metrics } from './platform/process/metrics.ts';
import { NO_TRACING, openTracing, type Tracing } from './platform/process/tracing.ts';
import { createVault, type Vault } from './platform/process/vault.ts';
import { type AllowanceStore, createAllowances } from './turns/allowances.ts';
import { createDeliveredReplies, createPublisher, type DeliveredReplies, type Publisher } from './turns/waiters.ts';
import { createIdempotencyKeys, type IdempotencyKeys } from './turns/idempotency-keys.ts';
import { createTurnLeases, type TurnLeases } from './turns/leases.ts';
import { createTurnQueue, type TurnQueue, TURNS_QUEUE, type TurnsJob } from './turns/queue.ts';

type Options = Opening & {
  redisRole: Exclude<RedisRole, 'subscriber'>;
  /**
   * How long to wait at the start until MongoDB and Redis answer. A command in a terminal waits for a shorter time than
   * a server.
   */
  startWithinMs?: number;
  /**
   * Opens a second, smaller connection pool of this size, with stores of its own (`service.aside`): in the API for
   * operators, in a worker for what it does in the background. However much of this work there is, visitors' turns keep
   * their own pool. Without a size, `aside` uses the one pool, which is enough for a command.
   */
  asidePoolSize?: number;
  /** The name under which this process sends its traces. Without a name, there are none. */
  tracesAs?: string;
  /** Tests pass a smaller one. */
  memory?: SharedMemory;
};

/** The second pool of an API process. A search uses at most two of its connections (`src/platform/http/shares.ts`). */
export const OPERATORS_POOL_SIZE = 16;
/** The second pool of a worker: for sweeps, projection, vectors and purges. */
export const BACKGROUND_POOL_SIZE = 8;

/** The stores on one pool of connections. */
type Stores = {
  alerts: AlertStore;
  allowances: AllowanceStore;
  assistants: AssistantStore;
  conversations: ConversationStore;
  deliveries: DeliveryStore;
  recoveries: Recoveries;
  evaluations: Evaluations;
  idempotencyKeys: IdempotencyKeys;
  inboxRecords: InboxRecords;
  insights: Insights;
  operators: OperatorStore;
  passages: PassageStore;
  questionSets: QuestionSets;
  sources: SourceStore;
  sourceRuns: SourceRuns;
  passageVectors: PassageVectors;
  workerSigns: WorkerSigns;
};

/** What every process shares: connections, stores on MongoDB, and queues on Redis. */
export type Service = Stores & {
  mongo: Connection;
  /** The process, as claims, leases and signs of life name it. */
  worker: string;
  /** The same stores on the second pool: for operators in the API, for background work in a worker. */
  aside: Stores & { mongo: Connection };
  /** Both pools have the same one, so that an operator's change clears what turns have cached. */
  endpoints: EndpointStore;
  mongoWatch: MongoWatch;
  redis: RedisClient;
  tracing: Tracing;
  partitions: Partitions;
  publisher: Publisher;
  localWorkers: LocalWorkers;
  leases: TurnLeases;
  deliveredReplies: DeliveredReplies;
  vault: Vault;
  memory: SharedMemory;
  turnQueue: TurnQueue;
  deliveryQueue: DeliveryQueue;
  /** The same two, and those of vectors and of sources, as the board and the alerts look at them. */
  queues: {
    turns: PartitionedQueue<TurnsJob>;
    deliveries: PartitionedQueue<WakeUpJob>;
    knowledge: PartitionedQueue<KnowledgeJob>;
    sources: PartitionedQueue<SourceJob>;
  };
};

/**
 * What a module gets from its process. A module is the API or a worker: what they do, on a service that is open. A
 * process has one module, or all of them (`workers/all`), and the lifecycle closes what they open.
 */
export type Module = Opening & {
  service: Service;
  metrics: Metrics;
  /** True if the module takes work of its process before it becomes a job. Others of its kind then get less of it. */
  takesLocally?: boolean;
};

/** The lifecycle closes what this opens. */
export const openService = async ({ config, logger, lifecycle, redisRole, ...options }: Options): Promise<Service> => {
  const { startWithinMs: timeoutMs, asidePoolSize, tracesAs, memory = createSharedMemory() } = options;
  const { draining } = lifecycle;
  const tracing =
    tracesAs === undefined ? NO_TRACING : await openTracing({ config, name: tracesAs, logger, lifecycle });
  const url = config.MONGODB_URL;
  const openAside = async (): Promise<Connection | null> =>
    asidePoolSize === undefined ? null : openMongo({ url, timeoutMs, maxPoolSize: asidePoolSize, aside: true }, logger);
  const openings = [
    openMongo({ url, timeoutMs }, logger),
    openRedis({ url: config.REDIS_URL, role: redisRole, timeoutMs, draining }, logger),
    openAside(),
  ] as const;
  // If one connection fails to open, the others are first registered for closing. Only then is the failure thrown.
  const [openedMongo, openedRedis, openedAside] = await Promise.allSettled(openings);
  if (openedMongo.status === 'fulfilled') lifecycle.add('mongodb', openedMongo.value, (opened) => opened.close());
  if (openedRedis.status === 'fulfilled') lifecycle.add('redis', openedRedis.value, closeRedis);
  if (openedAside.status === 'fulfilled' && openedAside.value)
    lifecycle.add('second pool of mongodb', openedAside.value, (opened) => opened.close());
  const [mongo, redis, second]: [Connection, RedisClient, Connection | null] = await Promise.all(openings);
  const mongoAside = second ?? mongo;

  const ping = async (): Promise<unknown> => mongo.db?.admin().command({ ping: 1 });
  const onAnswer = (notify: () => void): void => {
    for (const one of new Set([mongo, mongoAside])) one.getClient().on('connectionCheckedIn', notify);
  };
  const mongoWatch = lifecycle.add('mongodb watch', watchMongo({ ping, onAnswer }), (opened) => opened.close());

  const partitions: Partitions = createPartitions(config.REDIS_PREFIX, config.PARTITIONS);
  const localWorkers = createLocalWorkers();
  const openQueue = <Data>(name: string) => {
    const queue = openQueues<Data>(name, { redis, partitions, local: localWorkers }, logger);
    return lifecycle.add(`queue ${name}`, queue, (opened) => opened.close());
  };
  const queues = {
    turns: openQueue<TurnsJob>(TURNS_QUEUE),
    deliveries: openQueue<WakeUpJob>(DELIVERIES_QUEUE),
    knowledge: openQueue<KnowledgeJob>(KNOWLEDGE_QUEUE),
    sources: openQueue<SourceJob>(SOURCES_QUEUE),
  };
  const turnQueue = createTurnQueue(queues.turns, tracing);
  const deliveryQueue = createDeliveryQueue(queues.deliveries);
  const wakeKnowledge = createWake(queues.knowledge, (assistantId) => ({ assistantId }));
  const wakeSource = createWake(queues.sources, (sourceId) => ({ sourceId }));

  const worker = newToken();
  const vault = createVault({ keys: config.ENCRYPTION_KEY });
  const leases = lifecycle.add(
    'turn leases',
    createTurnLeases(redis, { partitions, worker, timing: config.timing }),
    (opened) => opened.close(),
  );
  const deliveredReplies = createDeliveredReplies(redis, partitions);
  const retentionDays = config.DELIVERY_RETENTION_DAYS;
  const guard = { allowPrivate: config.WEBHOOK_ALLOW_PRIVATE };
  const endpoints = createEndpointStore({
    connection: mongo,
    vault,
    guard,
    onChanged: createWakeStreams({ outbox: createOutboxStore(mongoAside), deliveryQueue }),
  });

  const createStores = (connection: Connection): Stores => {
    const assistants = createAssistantStore({
      connection,
      vault,
      sources: createVersionedSources(connection),
      memory,
      onKnowledgeChanged: wakeKnowledge,
    });
    const idempotencyKeys = createIdempotencyKeys(connection);
    const inboxRecords = createInboxRecords(connection);
    const insights = createInsights(connection);
    const operators = createOperatorStore(connection);
    const audit = createAudit(connection);
    const questionSets = createQuestionSets(connection);
    const evaluations = createEvaluations(connection);
    const conversations = createConversationStore({
      connection,
      receivers: endpoints.receivers,
      wakeDeliveries: deliveryQueue.wake,
      findDelivered: deliveredReplies.find,
      eraseElsewhere: async (erased, when) => {
        const { conversationId } = erased;
        const { until } = when;
        await idempotencyKeys.erase(conversationId, when);
        await inboxRecords.eraseConversation(conversationId, until);
        await deliveries.eraseConversation(erased, until);
        await insights.eraseConversations([conversationId]);
        await questionSets.eraseConversations([conversationId], until);
        await evaluations.eraseConversations([conversationId], until);
        await audit.eraseConversation(conversationId);
      },
      announceErased: async (erased) => {
        const { assistantId } = erased;
        const wanted = (await endpoints.receivers(assistantId))('conversation.erased');
        if (wanted.length === 0) return true;
        const to = (await endpoints.listEndpoints(assistantId)).filter(({ endpointId }) => wanted.includes(endpointId));
        const queued = await deliveries.queueErased(erased, to);
        for (const deliveryId of queued ?? []) deliveryQueue.wakeDelivery(deliveryId);
        return queued !== null;
      },
      takeBy: createTakeBy({ findAssistant: assistants.findAssistant, readAssignees: createReadAssignees(operators) }),
      orUnavailable: mongoWatch.orUnavailable,
      draining,
      tracing,
    });
    const { endWrittenWithinMs } = config.timing;
    const deliveries = createDeliveryStore({
      connection,
      endWrittenWithinMs,
      worker,
      retentionDays,
      conversations,
      listEndpointIds: endpoints.listEndpointIds,
    });
    const { timing } = config;
    return {
      alerts: createAlertStore(connection),
      allowances: createAllowances({ connection, usage: insights.usage }),
      assistants,
      conversations,
      deliveries,
      recoveries: createRecoveries({ connection, endpoints, retentionDays, endWrittenWithinMs }),
      evaluations,
      idempotencyKeys,
      inboxRecords,
      insights,
      operators,
      passages: createPassageStore({ connection }),
      questionSets,
      sources: createSourceStore({ connection, assistants, guard, wake: wakeSource }),
      sourceRuns: createSourceRuns({ connection, timing, raisePassages: assistants.raisePassages }),
      passageVectors: createPassageVectors({ connection, timing }),
      workerSigns: createWorkerSigns(connection),
    };
  };
  const stores = createStores(mongo);
  const aside = mongoAside === mongo ? stores : createStores(mongoAside);
  const withModels = Object.values(stores).flatMap((store) => ('models' in store ? [store] : []));
  await buildIndexes(
    mongo,
    [endpoints, ...withModels].flatMap(({ models }): Indexed[] => models),
  );

  return {
    mongo,
    worker,
    ...stores,
    aside: { mongo: mongoAside, ...aside },
    endpoints,
    mongoWatch,
    redis,
    tracing,
    partitions,
    publisher: createPublisher(redis),
    localWorkers,
    leases,
    deliveredReplies,
    vault,
    memory,
    turnQueue,
    deliveryQueue,
    queues,
  };
};

/**
 * The same service for workers beside an API. Callers' commands to Redis must fail within a second, and those of leases
 * and of BullMQ's workers must wait for Redis, so workers have a connection of their own. All else is shared: nobody
 * waits for a queue, because a sweep adds a lost wake-up again.
 */
export const openForWorkers = async ({
  service,
  config,
  logger,
  lifecycle,
}: Opening & Pick<Module, 'service'>): Promise<Service> => {
  const { draining } = lifecycle;
  const redis = await openRedis({ url: config.REDIS_URL, role: 'worker', draining }, logger);
  lifecycle.add('redis of the workers', redis, closeRedis);
  const leases = createTurnLeases(redis, { ...service, timing: config.timing });
  lifecycle.add('turn leases of the workers', leases, (opened) => opened.close());
  return { ...service, redis, leases };
};
