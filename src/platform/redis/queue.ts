import { createHash } from 'node:crypto';
import { type JobsOptions, Queue } from 'bullmq';
import { createBatcher } from '../process/batch.ts';
import { serverNow } from '../process/clock.ts';
import { withDeadline } from '../process/deadline.ts';
import { logHint } from '../process/hints.ts';
import type { Logger } from '../process/logger.ts';
import { workFor } from '../process/slices.ts';
import type { RedisClient } from './redis.ts';

/**
 * All Redis keys of a partition share a hash tag. So a partition is stored on one node of a cluster, and one Lua call
 * may use several of its keys. A conversation's partition depends only on its `_id`.
 */
export type Partitions = {
  count: number;
  tags: string[];
  tagOf: (conversationKey: string) => string;
  indexOf: (conversationKey: string) => number;
};

export const createPartitions = (prefix: string, count: number): Partitions => {
  const tags = Array.from({ length: count }, (_, index) => `{${prefix}-${index}}`);
  const indexOf = (key: string): number =>
    count === 1 ? 0 : createHash('sha1').update(key).digest().readUInt32BE(0) % count;
  return { count, tags, indexOf, tagOf: (key) => tags[indexOf(key)] as string };
};

/** Jobs are tried once. Some finished jobs are kept for inspection. */
const JOB_OPTIONS: JobsOptions = { attempts: 1, removeOnComplete: { count: 200 }, removeOnFail: { count: 2000 } };

/**
 * How long a closing queue waits for jobs that are being added. The wait is short, because Redis may be unavailable and
 * a sweep adds lost jobs again.
 */
const ADDED_WITHIN_MS = 1_000;

/**
 * The maximum number of waiting jobs. Above this number, no jobs are added, and sweeps find the work in MongoDB later.
 */
const JOBS_MAX = 20_000;
const COUNT_EVERY_MS = 1_000;
/** An older count is not used. It may come from before a pause, or a node may be unavailable. */
const COUNT_VALID_MS = 2_000;
/** A partition that takes longer to answer is left out of a sweep, because its node may be unavailable. */
const SWEPT_WITHIN_MS = 2_000;

/**
 * Workers in the process of a queue, which get their work without a job. A job is only a wake-up, so nothing is lost by
 * that: after a kill, a sweep finds the work.
 */
export type LocalWorkers = {
  /** A worker says whether it takes the work. While it has no room, the work needs a job. */
  serve: (queue: string, take: (data: unknown) => boolean) => void;
  offer: (queue: string, data: unknown) => boolean;
};

export const createLocalWorkers = (): LocalWorkers => {
  const takers = new Map<string, (data: unknown) => boolean>();
  return {
    serve: (queue, take) => void takers.set(queue, take),
    offer: (queue, data) => workFor(queue, () => takers.get(queue)?.(data) === true),
  };
};

export type PartitionedQueue<Data> = {
  queues: Queue<Data>[];
  /** The queue of the partition that holds this conversation. */
  of: (conversationKey: string) => Queue<Data>;
  /** Makes one thing for each partition. Returns the one for the partition that holds this conversation. */
  perPartition: <Made>(make: (queue: Queue<Data>) => Made) => (conversationKey: string) => Made;
  /**
   * Adds a job that no caller waits for, because a sweep adds lost jobs again. Never throws. `close` waits for the job
   * to be added.
   */
  addInBackground: (job: Promise<unknown>) => void;
  /** True if a worker of this process has taken the work. Otherwise it needs a job. */
  offer: (data: Data) => boolean;
  /**
   * The time when the job that has waited longest was added, over all partitions, in ms since the epoch. Null when no job
   * is waiting.
   */
  oldestWaitingAt: () => Promise<number | null>;
  /** Counts jobs by state, over all partitions. */
  countJobs: () => Promise<Record<string, number>>;
  close: () => Promise<void>;
};

/** How full a queue is. */
export type QueueWatch = Pick<PartitionedQueue<unknown>, 'countJobs' | 'oldestWaitingAt'>;

/** Opens one BullMQ queue per partition. All keys of a queue contain the partition's hash tag. Jobs are tried once. */
export const openQueues = <Data>(
  name: string,
  { redis, partitions, local }: { redis: RedisClient; partitions: Partitions; local?: LocalWorkers },
  logger: Logger,
): PartitionedQueue<Data> => {
  const queues = partitions.tags.map((prefix) => {
    const queue = new Queue<Data>(name, {
      connection: redis,
      prefix,
      defaultJobOptions: JOB_OPTIONS,
      // Workers check the version. If this command failed, for example while a node of a cluster is unavailable, the
      // queue would fail until the process ends.
      skipVersionCheck: true,
    });
    queue.on('error', (cause) => {
      logHint(logger, cause);
      logger.debug({ err: cause, queue: name }, 'queue connection failed');
    });
    return queue;
  });
  const adding = new Set<Promise<unknown>>();
  return {
    queues,
    of: (key) => queues[partitions.indexOf(key)] as Queue<Data>,
    perPartition: <Made>(make: (queue: Queue<Data>) => Made) => {
      const made = queues.map(make);
      return (key: string) => made[partitions.indexOf(key)] as Made;
    },
    addInBackground: (job) => {
      const tracked = job
        .catch((cause: unknown) => {
          logHint(logger, cause);
          logger.debug({ err: cause, queue: name }, 'a job could not be added');
        })
        .finally(() => adding.delete(tracked));
      adding.add(tracked);
    },
    offer: (data) => local?.offer(name, data) === true,
    oldestWaitingAt: () => oldestWaitingAt(queues),
    countJobs: () => countJobs(queues),
    close: async () => {
      await withDeadline(Promise.all(adding), ADDED_WITHIN_MS).catch(() => undefined);
      await Promise.allSettled(queues.map((queue) => queue.close()));
    },
  };
};

/**
 * Asks a queue at most once at a time, and later callers share the answer. While a node is unavailable, a worker's
 * command is repeated until the node answers. Without this, each sweep would leave one more such command behind.
 */
const askOnce = <Answer>(ask: (queue: Queue) => Promise<Answer>): ((queue: Queue) => Promise<Answer>) => {
  const asked = new WeakMap<Queue, Promise<Answer>>();
  return (queue) => {
    const answer = asked.get(queue) ?? ask(queue).finally(() => asked.delete(queue));
    asked.set(queue, answer);
    return answer;
  };
};

const countIn = askOnce((queue) => queue.getJobCounts('waiting', 'active', 'delayed', 'failed'));
const oldestIn = askOnce((queue) => queue.getJobs(['waiting'], 0, 0, true));

const countJobs = async (queues: Queue[]): Promise<Record<string, number>> => {
  const counts = await Promise.all(queues.map(countIn));
  const total: Record<string, number> = {};
  for (const [state, count] of counts.flatMap((one) => Object.entries(one))) total[state] = (total[state] ?? 0) + count;
  return total;
};

/**
 * Tells whether too many jobs were waiting when they were last counted. Counts at most once a second, and nobody waits
 * for the count, because a node of a cluster may be unavailable. Above the limit, work is left to the sweeps.
 */
const createFullCheck = (queue: QueueWatch): (() => boolean) => {
  let full = false;
  let counting = false;
  let startedAt = Number.NEGATIVE_INFINITY;
  let countedAt = Number.NEGATIVE_INFINITY;
  const count = async (): Promise<void> => {
    const { waiting = 0 } = await queue.countJobs();
    full = waiting > JOBS_MAX;
    countedAt = performance.now();
  };
  return () => {
    const now = performance.now();
    if (!counting && now - startedAt > COUNT_EVERY_MS) {
      counting = true;
      startedAt = now;
      void count()
        .catch(() => undefined)
        .finally(() => {
          counting = false;
        });
    }
    return full && now - countedAt < COUNT_VALID_MS;
  };
};

const oldestWaitingAt = async (queues: Queue[]): Promise<number | null> => {
  const jobs = await Promise.all(queues.map(oldestIn));
  const times = jobs.flat().flatMap((job) => (job ? [job.timestamp] : []));
  return times.length > 0 ? Math.min(...times) : null;
};

/**
 * Adds jobs for what arrives together, in the background. `jobsOf` divides it into jobs, and `traced` waits for them.
 * Each partition has a batcher of its own: while the node of one is unavailable, the others must not wait.
 */
export const createGatheredJobs = <Data, Item>(
  queue: PartitionedQueue<Data>,
  {
    name,
    jobsOf,
    traced = (_items, added) => added,
  }: {
    name: string;
    jobsOf: (items: Item[]) => Data[];
    traced?: (items: Item[], added: Promise<unknown>) => Promise<unknown>;
  },
): ((conversationKey: string, item: Item) => void) => {
  const isFull = createFullCheck(queue);
  const add = async (partition: Queue, items: Item[]): Promise<void> => {
    const left = jobsOf(items).filter((data) => !queue.offer(data));
    // If the queue is full, sweeps find the work later.
    if (left.length === 0 || isFull()) return;
    // Sweeps compare the timestamp of a job with times from MongoDB.
    const opts = { timestamp: serverNow() };
    const [first, ...more] = left;
    if (more.length === 0) await partition.add(name, first, opts);
    else await partition.addBulk(left.map((data) => ({ name, data, opts })));
  };
  const batcherOf = (partition: Queue<Data>) =>
    createBatcher<Item, void>(
      async (items) => {
        await traced(items, add(partition as Queue, items)); // BullMQ's types of names fit no type parameter
        return items.map(() => undefined);
      },
      // The items contain only our own ids, so a failure comes from Redis and concerns the whole batch.
      { maxInFlight: 8, isShared: () => true },
    );
  const gather = queue.perPartition(batcherOf);
  return (key, item) => queue.addInBackground(gather(key)(item));
};

/**
 * Adds a wake-up in the background: a job that only says what has something to do. If it is lost, or the queue is full, a
 * sweep finds it.
 */
export const createWake = <Data>(
  queue: PartitionedQueue<Data>,
  jobOf: (id: string) => Data,
): ((id: string) => void) => {
  const isFull = createFullCheck(queue);
  return (id) => {
    if (!isFull()) queue.addInBackground((queue.of(id) as Queue).add('wake', jobOf(id)));
  };
};

/**
 * Groups work by partition, with the time when the oldest waiting job of the partition was added. Leaves out partitions
 * that do not answer, so that the sweep of the others continues. Throws if none answers.
 */
export const groupByPartition = async <Data, Item>(
  queue: PartitionedQueue<Data>,
  items: Item[],
  keyOf: (item: Item) => string,
): Promise<{ items: Item[]; oldestWaitingAt: number | null }[]> => {
  const answers = await Promise.allSettled(
    [...Map.groupBy(items, (item) => queue.of(keyOf(item)))].map(async ([partition, some]) => ({
      items: some,
      oldestWaitingAt: await withDeadline(oldestWaitingAt([partition]), SWEPT_WITHIN_MS),
    })),
  );
  const failed = answers.filter((answer) => answer.status === 'rejected');
  if (failed[0] && failed.length === answers.length) throw failed[0].reason;
  return answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []));
};
