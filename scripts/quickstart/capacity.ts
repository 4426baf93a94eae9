import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { Pool } from 'undici';
import * as z from 'zod';
import { areVectorsMade } from '../../src/assistants/knowledge/semantic-state.ts';
import { readConfig } from '../../src/platform/process/config.ts';
import { secretsIn } from '../../src/platform/process/credentials.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { openService, type Service } from '../../src/service.ts';
import { planProcesses } from './processes.ts';
import { writeJsonPrivately } from './private-file.ts';
import { StartError } from './settings.ts';
import { MEANT_QUESTIONS, SHOP } from './shop.ts';
import { createSupervisor, type Supervisor } from './supervisor.ts';

/** Turns a second. `mixed`: of every second question, the words do not say which entry answers it. */
const Capacity = z.object({ sure: z.number(), mixed: z.number() });
export type Capacity = z.infer<typeof Capacity>;

/** With so many in flight, the turns use both cores. More mixed turns would be answered by words alone. */
const LOADS = { sure: 200, mixed: 20 };
const WARM_UP_MS = 700;
const COUNTED_MS = 1_500;
/** A machine that is busy with other work is given longer for its first answer. */
const FIRST_WITHIN_MS = 15_000;
const VECTORS_WITHIN_MS = 10_000;
/** A database and a Redis of its own, so that the demo's pages show nothing of it. Both are emptied afterwards. */
const NAME = 'parley-capacity';
const REDIS_DATABASE = 9;

/** Words that the engine reads over. They make a question distinct, so its vector is in no cache. */
const OPENINGS = [
  '',
  'hi, ',
  'hello, ',
  'hey, ',
  'please, ',
  'hi please, ',
  'a question: ',
  'help: ',
  'hello please, ',
];
const CLOSINGS = ['', ' please', ' thanks', ' thank you', ' maybe', ' right now', ' actually', ' exactly', ' still'];

const variantOf = (questions: string[], nth: number): string => {
  const round = Math.floor(nth / questions.length);
  const closing = CLOSINGS[Math.floor(round / OPENINGS.length) % CLOSINGS.length];
  return `${OPENINGS[round % OPENINGS.length]}${questions[nth % questions.length]}${closing}`;
};

const SURE_QUESTIONS = SHOP.knowledge.map(({ question }) => question);
const messageOf = (load: keyof typeof LOADS, nth: number): string =>
  load === 'sure' || nth % 2 === 0 ? variantOf(SURE_QUESTIONS, nth) : variantOf(MEANT_QUESTIONS, Math.floor(nth / 2));

/** Keeps so many turns in flight, each of a new session, and returns the turns a second after the warm-up. */
const measure = async (load: keyof typeof LOADS, url: string, apiKey: string): Promise<number> => {
  const pool = new Pool(url, { connections: LOADS[load] });
  const startedAt = performance.now();
  let sent = 0;
  let counted = 0;
  let from = FIRST_WITHIN_MS;
  const lane = async (): Promise<void> => {
    for (;;) {
      const body = JSON.stringify({ session_id: `${load}-${sent}`, message: messageOf(load, sent) });
      sent += 1;
      const headers = { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' };
      const answer = await pool.request({ method: 'POST', path: '/api/v1/chat', headers, body });
      await answer.body.dump();
      const ms = performance.now() - startedAt;
      if (ms > from + COUNTED_MS) return;
      if (ms < WARM_UP_MS || answer.statusCode !== 200) continue;
      from = Math.min(from, ms);
      counted += 1;
    }
  };
  try {
    await Promise.all(Array.from({ length: LOADS[load] }, lane));
    if (counted === 0) throw new StartError('no turn was answered while the capacity was measured');
    return Math.round(counted / (COUNTED_MS / 1000));
  } finally {
    await pool.destroy();
  }
};

const seed = async ({ assistants }: Service): Promise<{ assistantId: string; apiKey: string }> => {
  const { assistantId } = await assistants.createAssistant(SHOP.assistant);
  await assistants.addKnowledge(assistantId, SHOP.knowledge);
  const { apiKey } = await assistants.createApiKey({ assistantId, name: NAME, limitPerMinute: 1_000_000 });
  return { assistantId, apiKey };
};

/** Without a model there is nothing to wait for: the mixed questions are then answered by words, too. */
const untilVectorsAreMade = async (
  { assistants }: Service,
  assistantId: string,
  signal: AbortSignal,
): Promise<void> => {
  for (const since = performance.now(); performance.now() - since < VECTORS_WITHIN_MS; ) {
    if (areVectorsMade(await assistants.getAssistant(assistantId))) return;
    await pause(50, undefined, { signal });
  }
};

type Options = {
  cwd: string;
  /** With the addresses of stores that belong to the quickstart. */
  env: NodeJS.ProcessEnv & { MONGODB_URL: string; REDIS_URL: string };
  logDir: string;
  /** Keeps the result, so that later starts of this clone do not measure again. */
  file: string;
  signal: AbortSignal;
  onSupervisor: (supervisor: Supervisor) => void;
};

const databaseOf = (url: string): string => Object.assign(new URL(url), { pathname: `/${NAME}` }).href;

const readKept = (file: string): Capacity | null => {
  try {
    return Capacity.parse(JSON.parse(readFileSync(file, 'utf8')));
  } catch {
    return null; // the first start
  }
};

/** Measures what this machine carries, with an API process and a reply worker of its own, in some seconds. */
export const measureCapacity = async ({
  cwd,
  file,
  logDir,
  signal,
  onSupervisor,
  ...given
}: Options): Promise<Capacity> => {
  const kept = readKept(file);
  if (kept) return kept;
  const env = {
    ...given.env,
    MONGODB_URL: databaseOf(given.env.MONGODB_URL),
    REDIS_URL: Object.assign(new URL(given.env.REDIS_URL), { pathname: `/${REDIS_DATABASE}` }).href,
    LOG_LEVEL: 'warn',
    PORT: '0',
  };
  const counts = { api: 1, replyWorker: 1, deliveryWorker: 0, sourcesWorker: 0 };
  const plan = await planProcesses({ env, counts, watch: false }, () => undefined);
  const supervisor = createSupervisor({ cwd, env, logDir, say: () => undefined, onChange: () => undefined });
  onSupervisor(supervisor);
  const config = readConfig(env);
  const logger = createLogger({ name: NAME, level: 'error', secrets: secretsIn(env) }, process.stderr);
  const lifecycle = createLifecycle(logger, { deadlineMs: config.SHUTDOWN_DEADLINE_MS });
  try {
    const service = await openService({ config, logger, lifecycle, redisRole: 'api' });
    await Promise.all(plan.workers.map((spec) => supervisor.start({ ...spec, name: `capacity-${spec.name}` })));
    const { assistantId, apiKey } = await seed(service);
    await untilVectorsAreMade(service, assistantId, signal);
    const [url] = plan.baseUrls;
    const capacity = { sure: await measure('sure', url, apiKey), mixed: await measure('mixed', url, apiKey) };
    await supervisor.stop();
    await service.mongo.dropDatabase();
    await service.redis.flushdb();
    writeJsonPrivately(file, capacity);
    return capacity;
  } finally {
    await supervisor.stop();
    await lifecycle.close();
  }
};
