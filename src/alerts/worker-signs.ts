import { hostname } from 'node:os';
import type { Connection } from 'mongoose';
import { collectionOf, type Indexed, schemaOf } from '../platform/mongo/mongo.ts';
import { MINUTE_MS, serverNow } from '../platform/process/clock.ts';

const MINUTES_KEPT = 60;
const KEPT_S = 3_600;
const LISTED_MAX = 1_000;
/** A sign waits for no majority, so its readers do not either. */
const LOCAL = { readConcern: 'local' } as const;

/** The upper bounds in seconds of what is counted in a minute. What takes longer is in one more count. */
export const PACE_BOUNDS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];

/** How much a worker has ended in a minute. `counts`: by `PACE_BOUNDS`. */
type Minute = { at: Date; counts: number[] };

/** A worker of one queue in one process. */
export type WorkerSign = {
  /** The process. */
  worker: string;
  queue: string;
  host: string;
  pid: number;
  startedAt: Date;
  /** When it was last heard. */
  at: Date;
  /** Set if it has stopped in order. A killed or frozen worker is only silent. */
  stoppedAt?: Date;
  minutes: Minute[];
};
type StoredSign = WorkerSign & { _id: string };

/** Counts what a worker ends, with how long it took. */
export type WorkPace = {
  note: (seconds: number) => void;
  /** The minutes that are over. */
  take: () => Minute[];
};

export const createPace = (): WorkPace => {
  const minutes = new Map<number, number[]>();
  const minuteNow = (): number => Math.floor(serverNow() / MINUTE_MS) * MINUTE_MS;
  return {
    note: (seconds) => {
      const at = minuteNow();
      const counts = minutes.get(at) ?? Array<number>(PACE_BOUNDS.length + 1).fill(0);
      minutes.set(at, counts);
      const found = PACE_BOUNDS.findIndex((bound) => seconds <= bound);
      const nth = found === -1 ? PACE_BOUNDS.length : found;
      counts[nth] = (counts[nth] ?? 0) + 1;
    },
    take: () => {
      const now = minuteNow();
      const over = [...minutes].filter(([at]) => at < now).slice(-MINUTES_KEPT);
      for (const at of minutes.keys()) if (at < now) minutes.delete(at);
      return over.map(([at, counts]) => ({ at: new Date(at), counts }));
    },
  };
};

const signSchema = schemaOf<StoredSign>('workers');
signSchema.index({ at: 1 }, { expireAfterSeconds: KEPT_S });

/**
 * Which workers live, and what they have ended in the last hour. They are in MongoDB, because Redis lists the
 * connections of a frozen worker like those of others, and loses its counts in a flush. A worker has at most 60 minutes
 * of some 100 bytes.
 */
export type WorkerSigns = {
  models: Indexed[];
  /** The worker is alive, and has ended this since. */
  beat: (worker: string, queue: string, minutes: Minute[]) => Promise<void>;
  /** The worker stops in order. */
  leave: (worker: string, queue: string, minutes: Minute[]) => Promise<void>;
  /** The workers of the last hour, the last heard first, so that those that live are listed however many have died. */
  list: () => Promise<WorkerSign[]>;
  /** The same without what they have ended. */
  listHeard: () => Promise<Omit<WorkerSign, 'minutes'>[]>;
};

export const createWorkerSigns = (connection: Connection): WorkerSigns => {
  const model = connection.model<StoredSign>('WorkerSign', signSchema);
  const signs = collectionOf<StoredSign>(model);
  const host = hostname();
  const latest = { at: -1 } as const;
  const ofLastHour = () => ({ at: { $gt: new Date(serverNow() - KEPT_S * 1000) } });

  const beat = async (
    worker: string,
    queue: string,
    { minutes, stops = false }: { minutes: Minute[]; stops?: boolean },
  ): Promise<void> => {
    const startedAt = new Date(serverNow());
    await signs.updateOne(
      { _id: `${worker}:${queue}` },
      {
        $setOnInsert: { worker, queue, host, pid: process.pid, startedAt },
        $currentDate: { at: true, ...(stops && { stoppedAt: true as const }) },
        $push: { minutes: { $each: minutes, $slice: -MINUTES_KEPT } },
      },
      // The next sign makes a lost one good, and a process starts although MongoDB has no majority.
      { upsert: true, writeConcern: { w: 1 } },
    );
  };

  return {
    models: [model],
    beat: (worker, queue, minutes) => beat(worker, queue, { minutes }),
    leave: (worker, queue, minutes) => beat(worker, queue, { minutes, stops: true }),
    list: () =>
      signs.find(ofLastHour(), { ...LOCAL, limit: LISTED_MAX, sort: latest, projection: { _id: 0 } }).toArray(),
    listHeard: () =>
      signs
        .find(ofLastHour(), { ...LOCAL, limit: LISTED_MAX, sort: latest, projection: { _id: 0, minutes: 0 } })
        .toArray(),
  };
};
