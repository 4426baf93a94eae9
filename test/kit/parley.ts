import { randomUUID } from 'node:crypto';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { openService } from '../../src/service.ts';
import { type Kind, type ProcessOptions, type RealProcess, startRealProcess } from './processes.ts';
import { atClose, openServices, type Services } from './services.ts';

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
  API: 'api',
  'reply worker': 'reply',
  'delivery worker': 'delivery',
  'sources worker': 'sources',
  everything: 'all',
} as const satisfies Record<string, Kind>;

type ProcessName = keyof typeof PROCESSES;
export type Child = RealProcess & { name: ProcessName };

/** The environment decides on logs and on the model, as for operators. Only errors are shown. */
export const MEASURED = { defaults: {}, stdio: ['ignore', 'ignore', 'inherit'] } as const satisfies ProcessOptions;

/** Opens Parley with its own database: the stores for the set-up, and the processes as operators start them. `closeAll` ends it. */
export const openParley = async (database: string, given?: Services) => {
  const services = given ?? (await openServices(database));
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

  atClose(() => lifecycle.close());
  return {
    services,
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

    start: async (name: ProcessName, own: Record<string, string> = {}, nodeArgs: string[] = []): Promise<Child> => ({
      ...(await startRealProcess(PROCESSES[name], { ...env, ...own }, { ...MEASURED, nodeArgs })),
      name,
    }),
  };
};

export type Parley = Awaited<ReturnType<typeof openParley>>;
export type BenchAssistant = Awaited<ReturnType<Parley['addAssistant']>>;
