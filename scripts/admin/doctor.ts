import type { Command } from 'commander';
import { hintOf } from '../../src/process/hints.ts';
import { VERSION } from '../../src/process/lifecycle.ts';
import { type QueueState, readQueues } from './doctor/queues.ts';
import { type Reached, reachApi, reachMongo, reachRedis } from './doctor/reach.ts';
import { trySemantic } from './doctor/semantic.ts';
import { type Found, findStuck, type Stuck } from './doctor/stuck.ts';
import type { Answer, RunBare } from './session.ts';
import { type CommandContext, openForCommand } from './stores.ts';
import { fields, msOf, plain, table } from './text.ts';

const WAITING_TOO_LONG_MS = 10_000;

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
  queues.flatMap(({ name, workers, oldestWaitingMs }) => [
    ...(workers === 0 ? [`No worker is connected to the queue ${name}.`] : []),
    ...((oldestWaitingMs ?? 0) > WAITING_TOO_LONG_MS
      ? [`The oldest job of ${name} has waited ${msOf(oldestWaitingMs)}.`]
      : []),
  ]);

const stuckProblems = (stuck: Stuck): string[] => {
  const some = ({ count, oldestMs, examples }: Found, what: string): string[] =>
    count === 0 ? [] : [`${count} ${what}, the oldest for ${msOf(oldestMs)} (${examples.join(', ')}).`];
  return [
    ...some(stuck.staleHeads, 'turns wait for an answer that no worker is giving'),
    ...some(stuck.oldEvents, 'conversations have events that are not sent'),
    ...some(stuck.sending, 'deliveries are being sent for too long'),
    ...some(stuck.queued, 'tests or resends wait for a delivery worker'),
    ...some(stuck.sources, 'sources wait for a sources worker'),
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

const queueTable = (queues: QueueState[]): string =>
  table(
    ['QUEUE', 'WORKERS', 'WAITING', 'ACTIVE', 'DELAYED', 'FAILED', 'OLDEST WAITS'],
    queues.map(({ name, workers, counts, oldestWaitingMs }) => [
      name,
      workers ?? '?',
      counts['waiting'],
      counts['active'],
      counts['delayed'],
      counts['failed'],
      oldestWaitingMs === null ? null : msOf(oldestWaitingMs),
    ]),
  );

const examine = async (context: CommandContext): Promise<Answer> => {
  const { baseUrl, source } = context.settings;
  const [mongodb, redis, api, semantic] = await Promise.all([
    reachMongo(context),
    reachRedis(context),
    reachApi(baseUrl),
    trySemantic(context),
  ]);
  // Queues and stuck work can be read only if both stores are reachable.
  const opened = mongodb.reachable && redis.reachable ? await openForCommand(context) : null;
  const [queues, stuck] = opened ? await Promise.all([readQueues(opened), findStuck(opened)]) : [null, null];
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

export const addDoctorCommand = (program: Command, runBare: RunBare): void => {
  program
    .command('doctor')
    .description(
      'Check what is reachable, how full the queues are and what is stuck; exit status 1 if something is wrong',
    )
    .action(() => runBare(examine));
};
