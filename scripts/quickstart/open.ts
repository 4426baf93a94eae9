import { rmSync } from 'node:fs';
import { withoutCredentials } from '../../src/platform/process/credentials.ts';
import { type Capacity, measureCapacity } from './capacity.ts';
import { seedDemo } from './demo.ts';
import { type FirstTurn, tryFirstTurn } from './first-turn.ts';
import { writeJsonPrivately } from './private-file.ts';
import { planProcesses, receiverSpec } from './processes.ts';
import { keepSecrets } from './secrets.ts';
import { type Counts, filesIn, type Settings } from './settings.ts';
import { SHOP } from './shop.ts';
import { openStores } from './stores.ts';
import { createSupervisor, type Supervisor } from './supervisor.ts';
import type { Terminal } from './terminal.ts';
import { openPretty } from './watch.ts';

/** The content of `.local/quickstart.json`, by which other commands of this clone reach the running service. */
export type QuickstartState = {
  baseUrl: string;
  /** The address of each API process. The first address is the same as `baseUrl`. */
  baseUrls: string[];
  dashboardUrl: string;
  assistantId: string;
  apiKey: string;
  verifyToken: string;
  webhookSecret: string;
  receiverUrl: string;
  operator: { email: string; password: string } | null;
  /** The operator token of the admin command. */
  operatorToken: string;
  mongodbUrl: string;
  redisUrl: string;
  /** One process that does everything is in each list. */
  pids: { api: number[]; replyWorker: number[]; deliveryWorker: number[]; sourcesWorker: number[] };
};

type Options = {
  root: string;
  env: NodeJS.ProcessEnv;
  settings: Settings;
  /**
   * True for development: processes restart on change, logs go to the terminal, and the dashboard runs from its
   * sources.
   */
  watch: boolean;
  terminal: Terminal;
  signal: AbortSignal;
  /** Registers a cleanup function. The functions run in reverse order. */
  defer: (undo: () => unknown) => void;
  onSupervisor: (supervisor: Supervisor) => void;
};

/** The host of a database URL, read by a pattern, because the standard URL parser refuses a list of hosts. */
const hostOf = (url: string): string => /:\/\/([^/]+)/.exec(withoutCredentials(url))?.[1] ?? 'its URL';
const plural = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`;

const describeCounts = ({ api, replyWorker, deliveryWorker, sourcesWorker }: Counts): string =>
  `${plural(api, 'API')}, ${plural(replyWorker, 'reply worker')}, ` +
  `${plural(deliveryWorker, 'delivery worker')}, ${plural(sourcesWorker, 'sources worker')}`;

type Opened = {
  state: QuickstartState;
  firstTurn: FirstTurn;
  /** Only with stores of the quickstart's own, and processes of each kind: that is what it measures. */
  measure: (() => Promise<Capacity>) | null;
};

/** Starts the stores, the demo and the processes, and sends a first turn. */
export const openQuickstart = async (options: Options): Promise<Opened> => {
  const { root, settings, watch, terminal, signal, defer } = options;
  const { counts } = settings;
  const files = filesIn(settings.dir);
  rmSync(files.state, { force: true }); // a killed quickstart leaves its file

  const baseEnv = { ...options.env, ...keepSecrets(files.secrets, options.env), WEBHOOK_ALLOW_PRIVATE: 'true' };
  const plan = await planProcesses({ env: baseEnv, counts, watch }, terminal.say); // first, so that a bad setting is reported at once

  const stores = await terminal.step(
    'services',
    async () => {
      const opened = await openStores({ dataDir: files.data, env: baseEnv, say: terminal.say });
      defer(opened.stop);
      return opened;
    },
    ({ mongodbUrl, redisUrl }) => `MongoDB at ${hostOf(mongodbUrl)}, Redis at ${hostOf(redisUrl)}`,
  );
  signal.throwIfAborted();

  const env = { ...baseEnv, MONGODB_URL: stores.mongodbUrl, REDIS_URL: stores.redisUrl };
  const demo = await terminal.step(
    'demo assistant',
    () => seedDemo(env, { file: files.demo, receiverUrl: plan.receiverUrl }),
    ({ isNew }) =>
      isNew
        ? `created with ${SHOP.knowledge.length} knowledge entries of a coffee roaster`
        : 'found from an earlier start',
  );
  signal.throwIfAborted();

  let published = false;
  const state: QuickstartState = {
    baseUrl: plan.baseUrls[0],
    baseUrls: plan.baseUrls,
    dashboardUrl: `${plan.baseUrls[0]}/operator/`,
    assistantId: demo.assistantId,
    apiKey: demo.apiKey,
    verifyToken: demo.verifyToken,
    webhookSecret: demo.webhookSecret,
    receiverUrl: plan.receiverUrl,
    operator: demo.operator ?? null,
    operatorToken: demo.operatorToken,
    mongodbUrl: stores.mongodbUrl,
    redisUrl: stores.redisUrl,
    pids: { api: [], replyWorker: [], deliveryWorker: [], sourcesWorker: [] },
  };
  const publish = (): void => writeJsonPrivately(files.state, state);
  const supervisor = createSupervisor({
    cwd: root,
    env,
    logDir: files.logs,
    say: terminal.say,
    ...(watch && { show: await openPretty() }),
    onChange: ({ all = [], api = all, replyWorker = all, deliveryWorker = all, sourcesWorker = all }) => {
      state.pids = { api, replyWorker, deliveryWorker, sourcesWorker };
      if (published) publish();
    },
  });
  options.onSupervisor(supervisor);
  defer(supervisor.stop);
  await terminal.step(
    'processes',
    () => Promise.all([...plan.workers, receiverSpec(plan, demo.webhookSecret)].map(supervisor.start)),
    () => `${counts ? describeCounts(counts) : 'one for everything'}, demo receiver`,
  );
  defer(() => {
    published = false;
    rmSync(files.state, { force: true });
  });
  published = true;
  publish();

  const { baseUrl, apiKey, receiverUrl } = state;
  const firstTurn = await terminal.step(
    'first turn',
    () => tryFirstTurn({ baseUrl, apiKey, receiverUrl, question: SHOP.firstQuestion, signal }),
    ({ answeredMs, eventIds }) =>
      `answered in ${Math.round(answeredMs)} ms, ${eventIds.length} events received, signatures verified`,
  );
  const hasOwnStores = !options.env['MONGODB_URL'] && !options.env['REDIS_URL'];
  const measure = () => measureCapacity({ ...options, cwd: root, env, logDir: files.logs, file: files.capacity });
  return { state, firstTurn, measure: hasOwnStores && counts ? measure : null };
};
