import { openAlerts } from './alerts/watch.ts';
import { createApp } from './app.ts';
import { createAccess } from './assistants/access.ts';
import { createChannelCalls } from './assistants/channel.ts';
import { KNOWLEDGE_QUEUE, type KnowledgeJob } from './assistants/knowledge-queue.ts';
import { createRateLimiter } from './assistants/rate-limit.ts';
import type { StoredConversation } from './conversations/conversation.ts';
import { DELIVERIES_QUEUE, type WakeUpJob } from './deliveries/queue.ts';
import { openLiveUpdates } from './live/open.ts';
import type { Config } from './process/config.ts';
import { abortAfter } from './process/deadline.ts';
import { ApiError } from './process/errors.ts';
import { createReadiness } from './http/health.ts';
import { newToken } from './process/ids.ts';
import type { Lifecycle } from './process/lifecycle.ts';
import type { Logger } from './process/logger.ts';
import { createMetrics } from './process/metrics.ts';
import { openQueues } from './redis/queue.ts';
import { closeRedis, openRedis } from './redis/redis.ts';
import { closeWebServer, createWebServer, listen } from './http/web-server.ts';
import { createDevices, createSessions } from './operators/session.ts';
import { createInbox } from './inbox/inbox.ts';
import { createSignInLimits } from './operators/sign-in-limits.ts';
import { openOperators } from './operators/open.ts';
import { openService, OPERATORS_POOL_SIZE } from './service.ts';
import { SOURCES_QUEUE, type SourceJob } from './sources/queue.ts';
import { countRequests, sampleQueues } from './service-metrics.ts';
import { TURNS_QUEUE, type TurnsJob } from './turns/queue.ts';
import { createGate } from './turns/gate.ts';
import { createPublisher, openReplies } from './turns/replies.ts';
import { createStartTurn, createSubmit } from './turns/start-turn.ts';
import { createReadTurn, storedReplyOf } from './turns/turn-view.ts';

/** Assembles the API process and listens. Tests start it as `main.ts` does. Returns the stores and the port. */
export const openApi = async ({
  config,
  logger,
  lifecycle,
}: {
  config: Config;
  logger: Logger;
  lifecycle: Lifecycle;
}) => {
  const service = await openService({
    config,
    logger,
    lifecycle,
    redisRole: 'api',
    asidePoolSize: OPERATORS_POOL_SIZE,
  });
  const { aside, redis, partitions, conversations, assistants, endpoints, turnQueue, deliveryQueue, sourceQueue } =
    service;

  const { orUnavailable } = service.mongoWatch;
  const metrics = createMetrics({ token: config.METRICS_TOKEN });
  const count = countRequests(metrics);
  sampleQueues(metrics, { turns: turnQueue, deliveries: deliveryQueue, sources: sourceQueue });

  const subscriber = await openRedis({ url: config.REDIS_URL, role: 'subscriber' }, logger);
  lifecycle.add('redis subscriber', subscriber, closeRedis);
  const storedReply = storedReplyOf(conversations);
  const replies = await openReplies({
    subscriber,
    channel: `${partitions.tags[0]}:replies:${newToken()}`,
    isPending: conversations.isPending,
    findTurn: conversations.findTurn,
    storedReply,
    timing: config.timing,
    logger,
  });
  lifecycle.add('replies', replies, (opened) => opened.close());

  const publish = createPublisher(redis);
  const gate = createGate({ onRefused: () => count.refused('overload'), logger });
  const startTurn = createStartTurn({
    conversations,
    idempotencyKeys: service.idempotencyKeys,
    deliveredReplies: service.deliveredReplies,
    turnQueue,
    replies,
    replyTimeoutMs: config.REPLY_TIMEOUT_MS,
    mustEnd: abortAfter(lifecycle.draining, config.timing.replyStopAfterMs, new ApiError('reply_timeout')),
    onRepeated: count.repeated,
    onBusy: () => count.refused('session'),
    orUnavailable,
    logger,
  });

  const rateLimiter = createRateLimiter(redis, { prefix: config.REDIS_PREFIX, onRefused: count.refused });
  const channelCalls = createChannelCalls(redis, config.REDIS_PREFIX);
  lifecycle.add('channel calls', channelCalls, (opened) => opened.close());
  const { operators, tokens, audit } = await openOperators(aside.mongo);
  const openBoardQueues = <Data>(name: string) => {
    const queues = openQueues<Data>(name, { redis, partitions }, logger);
    return lifecycle.add(`queue ${name} of the board`, queues, (opened) => opened.close());
  };

  const inbox = createInbox({
    conversations: aside.conversations,
    operators,
    records: aside.inboxRecords,
    findByWords: aside.insights.findByWords,
  });
  const live = openLiveUpdates({
    connection: aside.mongo,
    conversations: aside.conversations,
    mongodbUrl: config.MONGODB_URL,
    inbox,
    redis,
    subscriber,
    presenceName: `${partitions.tags[0]}:presence`,
    draining: lifecycle.draining,
    logger,
  });
  lifecycle.add('live updates', live, (opened) => opened.close());

  openAlerts({ service, config, logger, lifecycle });
  const submit = createSubmit(startTurn);
  const tls = config.TLS_CERT_FILE !== undefined || config.TLS_TERMINATED_UPSTREAM;
  const onErased = ({ assistantId, sessionId, conversationId, waiting }: StoredConversation): void => {
    channelCalls.forget(assistantId, sessionId);
    for (const { turnId, replyTo } of waiting) {
      publish(replyTo, { turnId, conversationId, reply: { outcome: 'erased' } });
    }
  };
  const app = createApp({
    access: createAccess({ assistants, rateLimiter, channelCalls, orUnavailable }),
    conversations,
    startTurn,
    submit,
    readTurn: createReadTurn({ conversations, leases: service.leases, storedReply }),
    mongoWatch: service.mongoWatch,
    gate,
    onTurnAnswered: count.turnAnswered,
    readiness: createReadiness({ mongo: service.mongo, redis, draining: lifecycle.draining }),
    onErased,
    operatorApi: {
      queues: {
        turns: openBoardQueues<TurnsJob>(TURNS_QUEUE),
        deliveries: openBoardQueues<WakeUpJob>(DELIVERIES_QUEUE),
        knowledge: openBoardQueues<KnowledgeJob>(KNOWLEDGE_QUEUE),
        sources: openBoardQueues<SourceJob>(SOURCES_QUEUE),
      },
      sessions: createSessions(aside.mongo, config, orUnavailable),
      operators,
      tokens,
      orUnavailable,
      audit,
      alerts: aside.alerts,
      assistants: aside.assistants,
      channelCalls,
      endpoints,
      sources: aside.sources,
      deliveries: aside.deliveries,
      conversations: aside.conversations,
      notes: aside.inboxRecords.notes,
      readPositions: aside.inboxRecords.readPositions,
      cannedReplies: aside.inboxRecords.cannedReplies,
      managedTags: aside.inboxRecords.managedTags,
      onErased,
      inbox,
      insights: aside.insights,
      live,
      leases: service.leases,
      deliveredReplies: service.deliveredReplies,
      turnQueue,
      deliveryQueue,
      submit,
      rateLimiter,
      devices: createDevices(config, { secure: tls }),
      limits: createSignInLimits(rateLimiter),
      publicUrl: config.PUBLIC_URL,
      allowPrivate: config.WEBHOOK_ALLOW_PRIVATE,
      tls,
      logger,
    },
    metrics,
    publicUrl: config.PUBLIC_URL,
    draining: lifecycle.draining,
    trustProxy: config.TRUST_PROXY,
    logger,
  });
  const server = createWebServer(config, app, lifecycle.draining, { logger });
  const port = await listen(server, { host: config.HOST, port: config.PORT });
  const closing = { graceMs: config.SHUTDOWN_GRACE_MS, cutAfterMs: config.timing.connectionsCutAfterMs };
  lifecycle.add('web server', server, (opened) => closeWebServer(opened, closing));
  return { ...service, operators, tokens, audit, port };
};
