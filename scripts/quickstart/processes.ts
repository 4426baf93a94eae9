import { readConfig } from '../../src/platform/process/config.ts';
import { type Counts, choosePort, freePorts, reachableHost } from './settings.ts';
import type { ChildSpec } from './supervisor.ts';
import { dashboardSpec, WATCH_ARGS } from './watch.ts';

const ANSWER_WITHIN_MS = 1000;

const isReadyAt = (url: string) => async (): Promise<boolean> =>
  (await fetch(url, { signal: AbortSignal.timeout(ANSWER_WITHIN_MS) })).ok;

export type Plan = { baseUrls: [string, ...string[]]; receiverUrl: string; receiverPort: number; workers: ChildSpec[] };

/** Of one process that does everything. */
const NO_WORKERS: Counts = { api: 1, replyWorker: 0, deliveryWorker: 0, sourcesWorker: 0 };

/**
 * Describes every process to start, or the one that does everything (`counts` is null). The ports are fixed, so that a
 * process keeps its address after a restart.
 */
export const planProcesses = async (
  { env, counts, watch }: { env: NodeJS.ProcessEnv; counts: Counts | null; watch: boolean },
  say: (line: string) => void,
): Promise<Plan> => {
  const { HOST, TLS_CERT_FILE } = readConfig(env);
  const at = (port: number, scheme = 'http'): string => `${scheme}://${reachableHost(HOST)}:${port}`;
  const apiAt = (port: number): string => at(port, TLS_CERT_FILE === undefined ? 'http' : 'https');

  const main = (file: string): string[] => [...(watch ? WATCH_ARGS : []), file];
  const firstPort = await choosePort(env, HOST, say);
  const { api, replyWorker, deliveryWorker, sourcesWorker } = counts ?? NO_WORKERS;
  const free = await freePorts(api + replyWorker + deliveryWorker + sourcesWorker);
  const [receiverPort = 0] = free.splice(0, 1);
  const otherPorts = free.splice(0, api - 1);

  const listening = (kind: string, name: string, file: string): ChildSpec[] =>
    [firstPort, ...otherPorts].map((port, index) => ({
      name: `${name}-${index + 1}`,
      kind,
      args: main(file),
      env: { PORT: String(port) },
      isReady: isReadyAt(`${apiAt(port)}/readyz`),
    }));
  const worker = (kind: string, name: string, file: string, count: number): ChildSpec[] =>
    free.splice(0, count).map((port, index) => ({
      name: `${name}-${index + 1}`,
      kind,
      args: main(file),
      env: { WORKER_HEALTH_PORT: String(port) },
      isReady: isReadyAt(`${at(port)}/readyz`),
    }));
  return {
    baseUrls: [apiAt(firstPort), ...otherPorts.map(apiAt)],
    receiverUrl: `http://127.0.0.1:${receiverPort}`,
    receiverPort,
    workers: [
      ...(counts ? listening('api', 'api', 'src/main.ts') : listening('all', 'parley', 'workers/all/main.ts')),
      ...worker('replyWorker', 'reply-worker', 'workers/reply/main.ts', replyWorker),
      ...worker('deliveryWorker', 'delivery-worker', 'workers/delivery/main.ts', deliveryWorker),
      ...worker('sourcesWorker', 'sources-worker', 'workers/sources/main.ts', sourcesWorker),
      ...(watch ? [dashboardSpec(apiAt(firstPort))] : []),
    ],
  };
};

/** The command of the demo's receiver of events. Its output goes to the terminal. */
export const receiverSpec = ({ receiverPort, receiverUrl }: Plan, webhookSecret: string): ChildSpec => ({
  name: 'receiver',
  kind: 'receiver',
  args: ['scripts/quickstart/receiver.ts'],
  env: { PORT: String(receiverPort), WEBHOOK_SECRET: webhookSecret, ENCRYPTION_KEY: '' },
  isReady: isReadyAt(`${receiverUrl}/received`),
  inheritStdout: true,
});
