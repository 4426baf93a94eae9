import { MINUTE_MS, serverNow } from '../platform/process/clock.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { TIMING } from '../platform/process/time-limits.ts';
import type { QueueWatch } from '../platform/redis/queue.ts';
import { PACE_BOUNDS, type WorkerSign, type WorkerSigns } from './worker-signs.ts';

export const QUEUES = ['turns', 'deliveries', 'knowledge', 'sources'] as const;
type QueueName = (typeof QUEUES)[number];

/** A silent worker is forgotten after this: it was killed, and perhaps replaced. */
const FORGOTTEN_MS = 15 * 60_000;
/** Jobs that wait longer need somebody's attention. */
const WAITS_LONG_MS = 10_000;
/** How long Redis has for an answer. A worker's command is repeated while its node is unavailable. */
const ASKED_WITHIN_MS = 2_000;
const MINUTES = 60;
/** The minutes over which the pace is told. */
const LATEST = 5;

type Heard = Omit<WorkerSign, 'minutes'>;
type WorkerState = Pick<WorkerSign, 'worker' | 'host' | 'pid' | 'startedAt'> & {
  heardAt: Date;
  silent: boolean;
};

export type QueueState = {
  name: QueueName;
  /** Null if Redis does not answer. */
  jobs: { waiting: number; active: number; delayed: number; failed: number } | null;
  waitingSince: Date | null;
  workers: WorkerState[];
  /** How many were ended in a minute of the last five. Null if no worker has told. */
  perMinute: number | null;
  /** How long 95 % of these took at most, in seconds. */
  p95: number | null;
  /** The minutes of the last hour that workers have told of. What is missing is a gap. */
  minutes: { at: Date; ended: number; p95: number | null }[];
};

/** The workers of a queue that have neither stopped in order nor been replaced: by one that started at the same host later. */
export const workersOf = (queue: QueueName, signs: Heard[]): WorkerState[] => {
  const now = serverNow();
  const own = signs.filter((one) => one.queue === queue);
  return own
    .filter((one) => !one.stoppedAt && now - one.at.getTime() < FORGOTTEN_MS)
    .filter(({ host, at }) => !own.some((other) => other.host === host && other.startedAt > at))
    .map(({ worker, host, pid, startedAt, at }) => {
      return { worker, host, pid, startedAt, heardAt: at, silent: now - at.getTime() > TIMING.workerSilentMs };
    })
    .toSorted((one, other) => one.startedAt.getTime() - other.startedAt.getTime());
};

/** How many of these workers are heard, and how many are silent. */
export const countHeard = (workers: WorkerState[]): { heard: number; silent: number } => {
  const silent = workers.filter((one) => one.silent).length;
  return { heard: workers.length - silent, silent };
};

const sumOf = (all: number[][]): number[] =>
  Array.from({ length: PACE_BOUNDS.length + 1 }, (_, nth) => all.reduce((sum, counts) => sum + (counts[nth] ?? 0), 0));
const total = (counts: number[]): number => counts.reduce((sum, one) => sum + one, 0);

/** The bound below which 95 % are. Null if there are none, or if it is above all bounds. */
const p95Of = (counts: number[]): number | null => {
  let left = total(counts) * 0.95;
  if (left === 0) return null;
  const nth = counts.findIndex((count) => (left -= count) <= 1e-9);
  return PACE_BOUNDS[nth] ?? null;
};

const paceOf = (queue: QueueName, signs: WorkerSign[]): Pick<QueueState, 'perMinute' | 'p95' | 'minutes'> => {
  const now = Math.floor(serverNow() / MINUTE_MS) * MINUTE_MS;
  const own = signs.filter((one) => one.queue === queue);
  const told = own.flatMap(({ minutes }) => minutes).filter(({ at }) => at.getTime() >= now - MINUTES * MINUTE_MS);
  const byMinute = [...Map.groupBy(told, ({ at }) => at.getTime())].toSorted(([one], [other]) => one - other);
  const minutes = byMinute.map(([at, some]) => ({ at: new Date(at), counts: sumOf(some.map(({ counts }) => counts)) }));
  const latest = sumOf(
    minutes.filter(({ at }) => at.getTime() >= now - LATEST * MINUTE_MS).map(({ counts }) => counts),
  );
  return {
    perMinute: own.length === 0 ? null : total(latest) / LATEST,
    p95: p95Of(latest),
    minutes: minutes.map(({ at, counts }) => ({ at, ended: total(counts), p95: p95Of(counts) })),
  };
};

const ask = async <Value>(answer: Promise<Value>): Promise<Value | undefined> =>
  withDeadline(answer, ASKED_WITHIN_MS).catch(() => undefined);

/** What waits, since when, how fast it moves, and who works: for the dashboard’s page and for `doctor`. */
export const readQueueStates = async (
  queues: Record<QueueName, QueueWatch>,
  { list }: Pick<WorkerSigns, 'list'>,
): Promise<QueueState[]> => {
  const signs = await list();
  return Promise.all(
    QUEUES.map(async (name): Promise<QueueState> => {
      const [counts, since] = await Promise.all([ask(queues[name].countJobs()), ask(queues[name].oldestWaitingAt())]);
      const { waiting = 0, active = 0, delayed = 0, failed = 0 } = counts ?? {};
      return {
        name,
        jobs: counts === undefined ? null : { waiting, active, delayed, failed },
        waitingSince: since == null ? null : new Date(since),
        workers: workersOf(name, signs),
        ...paceOf(name, signs),
      };
    }),
  );
};

const seconds = (since: Date): string => `${Math.round((serverNow() - since.getTime()) / 1000)} s`;
const nameOf = ({ host, pid, heardAt }: WorkerState): string => `${host}, process ${pid}, ${seconds(heardAt)} ago`;

const PROCESSES: Record<QueueName, string> = {
  turns: 'reply-worker',
  knowledge: 'reply-worker',
  deliveries: 'delivery-worker',
  sources: 'sources-worker',
};

type QueueProblem = { queue: QueueName | null; problem: string; remedy: string };

const silenceOf = ({ name, workers }: QueueState): QueueProblem[] => {
  const silent = workers.filter((one) => one.silent);
  const names = silent.slice(0, 3).map(nameOf).join('; ');
  if (silent.length === workers.length) {
    const last = silent.length === 0 ? '' : ` Last heard: ${names}.`;
    const remedy = `Start one: node scripts/run.js start ${PROCESSES[name]}.`;
    return [{ queue: name, problem: `No worker of the queue ${name} is heard.${last}`, remedy }];
  }
  if (silent.length === 0) return [];
  const problem = `${silent.length} of ${workers.length} workers of the queue ${name} are silent, last heard: ${names}.`;
  const remedy = 'Look at these processes: restart one that hangs. One that is gone is forgotten in 15 minutes.';
  return [{ queue: name, problem, remedy }];
};

/** What is wrong with the queues, and what to do about it. */
export const problemsOf = (states: QueueState[]): QueueProblem[] =>
  states.flatMap((state) => {
    const { name, jobs, waitingSince } = state;
    const waits = waitingSince !== null && serverNow() - waitingSince.getTime() > WAITS_LONG_MS;
    const problem = `The oldest of ${jobs?.waiting ?? 0} jobs of ${name} has waited ${waits ? seconds(waitingSince) : ''}.`;
    const remedy = `Look at the logs and the CPU of its workers: restart one that hangs, add one if all are busy.`;
    return [...silenceOf(state), ...(waits ? [{ queue: name, problem, remedy }] : [])];
  });
