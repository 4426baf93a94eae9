import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { openService } from '../../src/service.ts';
import { killAll } from '../../test/kit/processes.ts';
import { createRandom } from '../../test/kit/random.ts';
import { type CastOptions, openCast } from './cast.ts';
import { openCrew } from './crew.ts';
import type { Evidence } from './evidence.ts';
import { newHistories, type Violation } from './history.ts';
import type { OTHER_RULES } from './report.ts';
import { judgeRefusals } from './rule-of-refusals.ts';
import { judgeEvents } from './rules-of-events.ts';
import { judgeTurns } from './rules-of-turns.ts';
import { openStores, type Topology } from './stores.ts';

type Options = {
  topology: Topology;
  plant: string | null;
  seed: number;
  cast: CastOptions;
  /** The number of processes of each kind, or `'all'`: one process that does everything. */
  each?: number | 'all';
};

/** Everything that a run needs: stores, processes, assistants, receivers, and the checker's own connections. */
export const openField = async ({ topology, plant, seed, cast: castOptions, each = 2 }: Options) => {
  const stores = await openStores(topology);
  const base = { NODE_ENV: 'test', WEBHOOK_ALLOW_PRIVATE: 'true', SEMANTIC: 'off', ...stores.redis.env };
  const env = { ...base, REDIS_URL: stores.redis.url, MONGODB_URL: stores.mongodb.url };
  const direct = { ...base, REDIS_URL: stores.redis.directUrl, MONGODB_URL: stores.mongodb.directUrl };
  const logger = createLogger({ name: 'chaos', level: 'silent' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 10_000 });
  const service = await openService({ config: readConfig(direct), logger, lifecycle, redisRole: 'worker' });
  const random = createRandom(seed);
  const cast = await openCast(service, createRandom(seed + 1), castOptions);
  const crew = await openCrew(env, { plant, each });
  const histories = newHistories();
  const wrong: Violation[] = [];
  const blame = (rule: (typeof OTHER_RULES)[number], what: string, session = ''): void =>
    void wrong.push({ rule, session, what });

  return {
    ...stores,
    service,
    random,
    cast,
    crew,
    histories,
    /** The address of a random API process. */
    api: (): string => {
      const apis = crew.apis();
      return apis[random.below(apis.length)] as string;
    },
    blame,

    /** Applies all rules to what was seen and stored. */
    judge: (evidence: Evidence): Violation[] => {
      for (const what of evidence.unfinished) blame('everything converges within a minute', what);
      for (const { session, where } of evidence.leftOfErased)
        blame('nothing of an erased conversation is left', `in ${where}`, session);
      for (const what of crew.crashes) blame('processes end only when they are told to', what);
      if (cast.forged() > 0) blame('signatures are valid', `${cast.forged()} requests had a wrong signature`);
      const events = judgeEvents({ ...evidence, endpoints: cast.endpoints, histories });
      return [...judgeTurns(histories, evidence.stored), ...judgeRefusals(histories), ...events, ...wrong];
    },

    close: async (): Promise<void> => {
      await crew.close();
      await killAll();
      await cast.close();
      await lifecycle.close();
      await Promise.all([stores.redis.dispose(), stores.mongodb.dispose()]);
    },
  };
};
