import { hintOf } from '../../../src/platform/process/hints.ts';
import { openMongo } from '../../../src/platform/mongo/mongo.ts';
import { closeRedis, mastersOf, openRedis, pingRedis } from '../../../src/platform/redis/redis.ts';
import type { CommandContext } from '../stores.ts';

/** A busy machine takes a second to refuse a password, and the advice depends on that answer. */
const WITHIN_MS = 3_000;

export type Reached = { reachable: boolean; ms: number | null; version: string | null } & Record<string, unknown>;

const UNREACHABLE: Reached = { reachable: false, ms: null, version: null };

/** A failed attempt, with what an operator can do about it, if that is known. */
const unreachable = (cause: unknown): Reached => {
  const known = hintOf(cause);
  return { ...UNREACHABLE, ...(known && { problem: known.problem, hint: known.hint }) };
};

const since = (start: number): number => Math.round((performance.now() - start) * 10) / 10;

/** Measures the response time of MongoDB after connecting, and reads its version and replica set. */
export const reachMongo = async ({ config, logger }: CommandContext): Promise<Reached> => {
  const mongo = await openMongo({ url: config.MONGODB_URL, timeoutMs: WITHIN_MS, maxPoolSize: 2 }, logger).catch(
    (cause: unknown) => unreachable(cause),
  );
  if ('reachable' in mongo) return mongo;
  if (!mongo.db) return UNREACHABLE;
  try {
    const start = performance.now();
    const hello = await mongo.db.command({ hello: 1 });
    const ms = since(start);
    const { version } = await mongo.db.admin().buildInfo();
    return { reachable: true, ms, version: String(version), replicaSet: hello['setName'] ?? null };
  } catch (cause) {
    return unreachable(cause);
  } finally {
    await mongo.close();
  }
};

/** A value in Redis' answer to INFO. */
const valueIn = (info: string, name: string): string => new RegExp(`^${name}:(.*?)\r?$`, 'm').exec(info)?.[1] ?? '';

const isFull = (info: string): boolean => {
  const limit = Number(valueIn(info, 'maxmemory'));
  return limit > 0 && Number(valueIn(info, 'used_memory')) >= limit;
};

export const reachRedis = async ({ config, logger }: CommandContext): Promise<Reached> => {
  const redis = await openRedis({ url: config.REDIS_URL, role: 'api', timeoutMs: WITHIN_MS }, logger).catch(
    (cause: unknown) => unreachable(cause),
  );
  if ('reachable' in redis) return redis;
  try {
    const start = performance.now();
    await pingRedis(redis);
    const ms = since(start);
    const infos = await Promise.all(mastersOf(redis).map((master) => master.info()));
    /** The values of all masters, each once. */
    const of = (name: string): string => [...new Set(infos.map((info) => valueIn(info, name)))].join(', ');
    return {
      reachable: true,
      ms,
      version: of('redis_version') || null,
      maxmemoryPolicy: of('maxmemory_policy') || null,
      appendOnly: of('aof_enabled') === '1',
      role: of('role'),
      outOfMemory: infos.some(isFull),
      masters: infos.length,
    };
  } catch (cause) {
    return unreachable(cause);
  } finally {
    await closeRedis(redis);
  }
};

/** Asks the API whether it is ready. Returns null if the API's address is unknown. */
export const reachApi = async (baseUrl: string | null): Promise<(Reached & { url: string }) | null> => {
  if (baseUrl === null) return null;
  const start = performance.now();
  try {
    const response = await fetch(`${baseUrl}/readyz`, { signal: AbortSignal.timeout(WITHIN_MS) });
    await response.body?.cancel();
    return { url: baseUrl, reachable: true, ms: since(start), version: null, ready: response.ok };
  } catch {
    return { url: baseUrl, ...UNREACHABLE };
  }
};
