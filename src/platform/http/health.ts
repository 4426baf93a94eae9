import type { RequestListener, Server } from 'node:http';
import type { Connection } from 'mongoose';
import { type ApiError, notFound, unavailable } from '../process/errors.ts';
import { newId } from '../process/ids.ts';
import { withDeadline } from '../process/deadline.ts';
import type { Logger } from '../process/logger.ts';
import type { Metrics } from '../process/metrics.ts';
import { pingRedis, type RedisClient } from '../redis/redis.ts';
import { createWebServer, listen } from './web-server.ts';

const ANSWER_WITHIN_MS = 1_000;
/** How long the results of the pings are used again, so that many checks at once cost as much as one. */
const CHECKED_FOR_MS = 200;

export type Readiness = { ready: boolean; checks: Record<string, string> };

class NoAnswer extends Error {}

const checkResult = (check: Promise<unknown>): Promise<string> =>
  withDeadline(check, ANSWER_WITHIN_MS, { late: () => new NoAnswer() }).then(
    () => 'ok',
    (cause: unknown) => (cause instanceof NoAnswer ? 'no answer' : 'away'),
  );

type Dependencies = {
  mongo: Connection;
  redis: RedisClient;
  draining: AbortSignal;
  /** Returns the name of the part of this process's work that is stuck, or null. */
  stuck?: () => string | null;
};

/**
 * Checks whether the process is ready: MongoDB and Redis answer, the process is not draining, and its work is not
 * stuck.
 */
export const createReadiness = ({
  mongo,
  redis,
  draining,
  stuck = () => null,
}: Dependencies): (() => Promise<Readiness>) => {
  const askStores = async (): Promise<Record<string, string>> => {
    const ping = mongo.db ? mongo.db.admin().command({ ping: 1 }) : Promise.reject(new Error('not connected'));
    const [mongodb, redisAnswer] = await Promise.all([checkResult(ping), checkResult(pingRedis(redis))]);
    return { mongodb, redis: redisAnswer };
  };
  let last: { at: number; isOver: boolean; stores: Promise<Record<string, string>> } | null = null;
  const recentAnswers = (): Promise<Record<string, string>> => {
    const now = performance.now();
    if (last && (!last.isOver || now - last.at < CHECKED_FOR_MS)) return last.stores;
    const asked = { at: now, isOver: false, stores: askStores() };
    const end = (): void => {
      asked.isOver = true;
    };
    asked.stores.then(end, end);
    last = asked;
    return asked.stores;
  };

  return async () => {
    const checks = { ...(await recentAnswers()) };
    if (draining.aborted) checks.process = 'draining';
    const problem = stuck();
    if (problem !== null) checks.work = problem;
    return { ready: Object.values(checks).every((value) => value === 'ok'), checks };
  };
};

/**
 * The maximum number of open connections of a worker. Without a limit, they could use up the files that the worker
 * needs for its own work.
 */
const HEALTH_CONNECTIONS_MAX = 200;

/** Serves a worker's `/healthz`, `/readyz` and, if metrics are given, `/metrics`. */
export const openHealthServer = async (options: {
  host: string;
  port: number;
  readiness: () => Promise<Readiness>;
  metrics?: Metrics;
  draining: AbortSignal;
  logger: Logger;
}): Promise<{ server: Server; port: number }> => {
  const listener: RequestListener = (req, res) => {
    const answer = (status: number, body: unknown): void => {
      res.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
    };
    const refuse = (error: ApiError, rest = {}): void => answer(error.status, { ...error.toBody(newId()), ...rest });
    const failed = (cause: unknown): void => refuse(unavailable(cause));
    if (req.url === '/healthz') return answer(200, { status: 'ok' });
    if (req.url === '/readyz') {
      options.readiness().then((state) => (state.ready ? answer(200, state) : refuse(unavailable(), state)), failed);
      return;
    }
    if (req.url === '/metrics' && options.metrics) {
      const { answer: read, contentType } = options.metrics;
      read(req).then(
        (text) => (text === null ? refuse(notFound()) : res.writeHead(200, { 'Content-Type': contentType }).end(text)),
        failed,
      );
      return;
    }
    refuse(notFound());
  };
  const limits = { connectionsMax: HEALTH_CONNECTIONS_MAX, logger: options.logger };
  const server = createWebServer({}, listener, options.draining, limits);
  return { server, port: await listen(server, options) };
};
