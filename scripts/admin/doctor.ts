import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import { countHeard, problemsOf, type QueueState, readQueueStates } from '../../src/alerts/queue-state.ts';
import { hintOf } from '../../src/platform/process/hints.ts';
import { VERSION } from '../../src/platform/process/lifecycle.ts';
import { type Reached, reachApi, reachMongo, reachRedis } from './doctor/reach.ts';
import { trySemantic } from './doctor/semantic.ts';
import { type Found, findStuck, type Stuck } from './doctor/stuck.ts';
import type { Answer, RunBare } from './session.ts';
import { type CommandContext, openForCommand, type Opened } from './stores.ts';
import { fields, msOf, plain, table } from './text.ts';

type Api = Awaited<ReturnType<typeof reachApi>>;

const adviceOf = ({ problem, hint }: Reached): string =>
  typeof problem === 'string' && typeof hint === 'string' ? ` ${problem}. ${hint}` : '';

/** What to do about a Redis that answers and refuses writes with this error. */
const refusalOf = (code: string): string => {
  const known = hintOf(new Error(`${code} `));
  return known ? `${known.problem}. ${known.hint}` : code;
};

const reachProblems = ({
  mongodb,
  redis,
  api,
  source,
  partitions,
}: {
  mongodb: Reached;
  redis: Reached;
  api: Api;
  source: string;
  partitions: number;
}): string[] => {
  const problems: string[] = [];
  if (!mongodb.reachable) problems.push(`MongoDB does not answer at the address of ${source}.${adviceOf(mongodb)}`);
  if (!redis.reachable) problems.push(`Redis does not answer at the address of ${source}.${adviceOf(redis)}`);
  if (redis['outOfMemory'] === true) problems.push(refusalOf('OOM'));
  if (redis['role'] === 'slave') problems.push(refusalOf('READONLY'));
  if (redis.reachable && redis['maxmemoryPolicy'] !== 'noeviction') {
    problems.push(`Redis may evict jobs: maxmemory-policy is ${String(redis['maxmemoryPolicy'])}, not noeviction.`);
  }
  if (partitions < Number(redis['masters'] ?? 0)) {
    problems.push(
      `PARTITIONS is ${partitions}, so some of the ${String(redis['masters'])} masters of Redis get no queue.`,
    );
  }
  if (api && !api.reachable) problems.push(`The API does not answer at ${api.url}.`);
  if (api?.reachable && api['ready'] !== true) problems.push(`The API at ${api.url} is not ready.`);
  return problems;
};

const queueProblems = (queues: QueueState[]): string[] =>
  problemsOf(queues).map(({ problem, remedy }) => `${problem} ${remedy}`);

const stuckProblems = (stuck: Stuck): string[] => {
  const some = ({ count, oldestMs, examples }: Found, what: string, remedy: string): string[] =>
    count === 0 ? [] : [`${what}: ${count}, the oldest for ${msOf(oldestMs)} (${examples.join(', ')}). ${remedy}`];
  const findIt = 'Find it by its id on the page On call, which says why.';
  return [
    ...some(stuck.staleHeads, 'Turns that no worker is answering', 'Start a reply worker, or restart one that hangs.'),
    ...some(stuck.oldEvents, 'Conversations with events that are not sent', findIt),
    ...some(stuck.sending, 'Deliveries that are being sent for too long', 'Start a delivery worker: it ends them.'),
    ...some(
      stuck.queued,
      'Tests or resends that no worker sends',
      'Start a delivery worker, or restart one that hangs.',
    ),
    ...some(stuck.sources, 'Sources that no worker reads', 'Start a sources worker, or add one if all are busy.'),
    ...stuck.pausedEndpoints.map(({ endpointId, url, pause }) =>
      pause?.reason === 'gone'
        ? `Endpoint ${endpointId} (${url}) answered 410 and is paused; \`endpoint resume\` ends the pause.`
        : `Endpoint ${endpointId} (${url}) asked to wait until ${pause?.until?.toISOString() ?? '?'}.`,
    ),
    ...(stuck.unreadableSecrets.length > 0
      ? [
          `ENCRYPTION_KEY does not open the secrets of ${stuck.unreadableSecrets.length} endpoints (${stuck.unreadableSecrets.slice(0, 5).join(', ')}).`,
        ]
      : []),
  ];
};

const describe = ({ reachable, version, ms }: Reached): string =>
  reachable ? `${version ?? 'reached'}, ${msOf(ms)}` : 'unavailable';

const seconds = (time: Date | null): string | null => (time === null ? null : msOf(Date.now() - time.getTime()));

const heardOf = ({ workers }: QueueState): string => {
  const { heard, silent } = countHeard(workers);
  return silent === 0 ? String(heard) : `${heard}, ${silent} silent`;
};

const queueTable = (queues: QueueState[]): string =>
  table(
    ['QUEUE', 'WORKERS', 'WAITING', 'ACTIVE', 'FAILED', 'OLDEST WAITS', 'A MINUTE', 'P95'],
    queues.map((queue) => [
      queue.name,
      heardOf(queue),
      queue.jobs?.waiting ?? '?',
      queue.jobs?.active ?? '?',
      queue.jobs?.failed ?? '?',
      seconds(queue.waitingSince),
      queue.perMinute === null ? null : queue.perMinute.toFixed(1),
      queue.p95 === null ? null : `${queue.p95} s`,
    ]),
  );

/** Opens queues and stores once. They can be read only while both stores are reachable. */
const createExamine = (context: CommandContext): (() => Promise<Answer>) => {
  const { baseUrl, source } = context.settings;
  let opened: Promise<Opened> | undefined;
  let trying: ReturnType<typeof trySemantic> | undefined;
  const open = async (): Promise<Opened> => {
    opened ??= openForCommand(context);
    return opened.catch((cause: unknown) => {
      opened = undefined;
      throw cause;
    });
  };
  return async () => {
    trying ??= trySemantic(context);
    const [mongodb, redis, api, semantic] = await Promise.all([
      reachMongo(context),
      reachRedis(context),
      reachApi(baseUrl),
      trying,
    ]);
    const stores = mongodb.reachable && redis.reachable ? await open() : null;
    const [queues, stuck] = stores
      ? await Promise.all([readQueueStates(stores.queues, stores.workerSigns), findStuck(stores)])
      : [null, null];
    const problems = [
      ...reachProblems({ mongodb, redis, api, source, partitions: context.config.PARTITIONS }),
      ...(queues ? queueProblems(queues) : []),
      ...(stuck ? stuckProblems(stuck) : []),
      ...(semantic.available || context.config.SEMANTIC !== 'on'
        ? []
        : [`Semantic search is on (SEMANTIC=on) but not available: ${semantic.detail}.`]),
    ];
    const versions = { parley: VERSION, node: process.versions.node };
    const verdict =
      problems.length === 0 ? 'No problems found.' : plain(problems.map((problem) => `! ${problem}`).join('\n'));
    const facts = fields({
      ...versions,
      mongodb: describe(mongodb),
      redis: describe(redis),
      ...(api && { api: describe(api) }),
      semantic: semantic.available ? semantic.detail : `not available: ${semantic.detail}`,
    });
    return {
      json: { ok: problems.length === 0, problems, source, versions, mongodb, redis, api, semantic, queues, stuck },
      text: [facts, ...(queues ? [queueTable(queues)] : []), verdict].join('\n\n'),
      status: problems.length === 0 ? 0 : 1,
    };
  };
};

const EVERY_MS = 5_000;

/** Examines again and again until it is told to stop. The status is that of the last time. */
const watch = async (context: CommandContext, print: (answer: Answer) => void): Promise<null> => {
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());
  const examine = createExamine(context);
  while (!stop.signal.aborted) {
    const at = new Date();
    const { json, text, ...rest } = await examine();
    const whole = { at: at.toISOString(), ...(json as object) };
    print({ ...rest, json: whole, text: `${at.toISOString()}\n\n${text}\n`, replaces: true });
    await sleep(EVERY_MS, undefined, { signal: stop.signal }).catch(() => undefined);
  }
  return null;
};

export const addDoctorCommand = (program: Command, runBare: RunBare): void => {
  program
    .command('doctor')
    .description(
      'Check what is reachable, how full the queues are and what is stuck; exit status 1 if something is wrong',
    )
    .option('--watch', 'check every five seconds until Ctrl-C; with --json one line each time')
    .action(({ watch: again = false }: { watch?: boolean }) =>
      runBare((context, print) => (again ? watch(context, print) : createExamine(context)())),
    );
};
