import { randomUUID } from 'node:crypto';
import { readConfig } from '../../src/process/config.ts';
import { createLifecycle } from '../../src/process/lifecycle.ts';
import { createLogger } from '../../src/process/logger.ts';
import { openService } from '../../src/service.ts';
import { type Child, type Services, startChild } from './services.ts';

const FEATURES = 'alpha beta gamma delta epsilon zeta eta theta iota kappa'.split(' ');
const UNLIMITED_PER_MINUTE = 1_000_000;

/** Questions of visitors. Each question has its answer among the assistant's 200 entries. */
export const QUESTIONS = Array.from(
  { length: 200 },
  (_, number) => `How do I configure feature ${FEATURES[number % FEATURES.length]} number ${number}?`,
);

const KNOWLEDGE = QUESTIONS.map((question, number) => ({
  question,
  variants: [],
  answer: `Answer ${number}: open the settings, choose the feature and save it; it works from the next message on.`,
  language: 'en',
  actions: [],
  tags: [],
}));

const PROCESSES = {
  API: { file: 'src/main.ts', portIn: 'PORT' },
  'reply worker': { file: 'workers/reply/main.ts', portIn: 'WORKER_HEALTH_PORT' },
  'delivery worker': { file: 'workers/delivery/main.ts', portIn: 'WORKER_HEALTH_PORT' },
  'sources worker': { file: 'workers/sources/main.ts', portIn: 'WORKER_HEALTH_PORT' },
  everything: { file: 'workers/all/main.ts', portIn: 'PORT' },
} as const;

/** Opens Parley with its own database: the stores for the set-up, and the processes as operators start them. */
export const openParley = async (services: Services, database = 'parley') => {
  const env = {
    REDIS_URL: services.redisUrl,
    REDIS_PREFIX: database,
    MONGODB_URL: services.mongodbUrlOf(database),
    WEBHOOK_ALLOW_PRIVATE: 'true',
  };
  const logger = createLogger({ name: 'bench', level: 'error' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 5000 });
  const config = readConfig(env);
  const service = await openService({ config, logger, lifecycle, redisRole: 'worker' });

  return {
    service,
    env,

    /** Adds one assistant with its 200 entries, an API key with a very high limit, and its endpoints. */
    addAssistant: async (urls: string[] = []) => {
      const { assistantId, sessionKey } = await service.assistants.createAssistant({
        name: 'Bench',
        sessionLimitPerMinute: UNLIMITED_PER_MINUTE,
      });
      await service.assistants.addKnowledge(assistantId, KNOWLEDGE);
      const key = { assistantId, name: 'bench', limitPerMinute: UNLIMITED_PER_MINUTE };
      const { apiKey } = await service.assistants.createApiKey(key);
      for (const url of urls) await service.endpoints.addEndpoint(assistantId, { url });
      return { assistantId, sessionKey, apiKey, sessionPrefix: randomUUID().slice(0, 8) };
    },

    start: (name: keyof typeof PROCESSES, own: Record<string, string> = {}, nodeArgs: string[] = []): Promise<Child> =>
      startChild({ name, ...PROCESSES[name], env: { ...env, ...own }, nodeArgs }),

    close: () => lifecycle.close(),
  };
};

export type Parley = Awaited<ReturnType<typeof openParley>>;
export type BenchAssistant = Awaited<ReturnType<Parley['addAssistant']>>;
