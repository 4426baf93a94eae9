import { setTimeout as sleep } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import { withDeadline } from '../process/deadline.ts';
import { createSlices } from '../process/slices.ts';
import { createSlots, oneEach, restAsLong, UNBOUNDED, withRests, workInSlot } from '../process/slots.ts';
import { DURABLE } from './mongo.ts';

export type Lease = { token: string; until: Date };

/**
 * The parts of the updates that keep a lease in a field of a document. A lease belongs to a token until a time of
 * MongoDB's clock. Its holder renews it, and after that time anybody may take it.
 */
export const leaseIn = <Path extends string>(path: Path, lastsMs: number) => ({
  /** Matches a document whose lease nobody holds. */
  free: { $expr: { $lt: [{ $ifNull: [`$${path}.until`, new Date(0)] }, '$$NOW'] } },

  heldBy: (token: string) => ({ [`${path}.token`]: token }) as Record<`${Path}.token`, string>,

  /** The lease as an expression of an update pipeline. `$literal` keeps the token from being evaluated. */
  renewed: (token: string) => ({ token: { $literal: token }, until: { $add: ['$$NOW', lastsMs] } }),

  /** The operand of `$unset` that ends the lease. */
  ended: { [path]: '' } as Record<Path, ''>,
});

type Keeping = {
  everyMs: number;
  /** Ends the work too. */
  until: AbortSignal;
  /** Looks each time whether the work must end for another reason. */
  findProblem?: () => Error | null;
};

/** Renews a lease again and again, until `stop`. The signal aborts if the lease is lost, or the work must end. */
export const keepLease = (
  renew: () => Promise<boolean>,
  { everyMs, until, findProblem = () => null }: Keeping,
): { signal: AbortSignal; stop: () => void } => {
  const lost = new AbortController();
  const timer = setInterval(() => {
    const problem = findProblem();
    if (problem) lost.abort(problem);
    renew()
      .then((isHeld) => isHeld || lost.abort(new Error('the lease was lost')))
      .catch(() => undefined); // each write checks the lease anyway
  }, everyMs);
  return { signal: AbortSignal.any([lost.signal, until]), stop: () => clearInterval(timer) };
};

type Behind = { $gt: string; $lte?: string };

/**
 * Reads some rows of one assistant after the other, until there are `most` rows or each assistant was read once. The
 * next read goes on behind the last assistant, and with the first one after all others. So the many rows of some
 * assistants hide none of another. `readNext` reads the first rows of a range, in the order of assistants.
 */
export const createRound = <Row extends { assistantId: string }>() => {
  let last = '';
  return async (most: number, readNext: (assistantId: Behind) => Promise<Row[]>): Promise<Row[]> => {
    const rows: Row[] = [];
    const walk = async (range: Behind): Promise<void> => {
      for (let behind = range; rows.length < most; ) {
        const next = await readNext(behind);
        const assistantId = next[0]?.assistantId;
        if (assistantId === undefined) return;
        rows.push(...next.filter((row) => row.assistantId === assistantId));
        behind = { ...range, $gt: assistantId };
      }
    };
    const start = last;
    await walk({ $gt: start });
    if (start !== '') await walk({ $gt: '', $lte: start });
    last = rows.at(-1)?.assistantId ?? '';
    return rows;
  };
};

/** The highest number of index ranges that MongoDB merges in order. With more ranges, it would sort all results. */
export const INDEX_RANGES_MAX = 200;
const VALUES_AT_ONCE = 100;

/** Splits the values of an `$in`, so that MongoDB can read the results of each part from an index in order. */
export const inChunks = <Value>(all: Value[], size = VALUES_AT_ONCE): Value[][] =>
  Array.from({ length: Math.ceil(all.length / size) }, (_, nth) => all.slice(nth * size, (nth + 1) * size));

const BATCH = 500;
/** A batch that takes longer is followed by a rest, if its caller rests. */
const SLOW_BATCH_MS = 50;

/** After a batch that began at `since` and was slow: a rest as long as it took, so that MongoDB has time for others. */
export const restIfSlow = async (since: number): Promise<void> => {
  const tookMs = performance.now() - since;
  if (tookMs > SLOW_BATCH_MS) await sleep(restAsLong(tookMs));
};

type Batches<Row extends { _id: string }> = {
  collection: mongo.Collection<Row>;
  filter: mongo.Filter<Row>;
  until?: AbortSignal;
  /** How many documents a batch has: few if they are large, because MongoDB keeps what a command changes in its cache. */
  maxItems?: number;
  /** An expression for the documents that are handled. A command that had to look for them could take too long. */
  only?: mongo.Document;
  /** If true, a slow batch is followed by a rest. */
  rests?: boolean;
};

/**
 * Runs `work` on all matching documents, some at a time. So no command takes long enough for its connection to count as
 * silent. After a failure or an abort, the next call starts from the beginning, so `work` must be safe to repeat.
 */
export const inBatches = async <Row extends { _id: string }>(
  { collection, filter, until, maxItems = BATCH, only, rests = false }: Batches<Row>,
  work: (some: mongo.Filter<Row>, ids: Row['_id'][]) => Promise<unknown>,
): Promise<void> => {
  const projection = { _id: 1, ...(only && { isWanted: only }) };
  const found = collection.find<{ _id: Row['_id']; isWanted?: boolean }>(filter, { projection, batchSize: maxItems });
  try {
    let ids: Row['_id'][] = [];
    const flush = async (): Promise<void> => {
      const some = ids;
      ids = [];
      if (some.length === 0) return;
      const since = performance.now();
      await work({ _id: { $in: some } } as mongo.Filter<Row>, some);
      if (rests) await restIfSlow(since);
    };
    for await (const { _id, isWanted } of found) {
      until?.throwIfAborted();
      if (isWanted !== false) ids.push(_id);
      if (ids.length === maxItems) await flush();
    }
    await flush();
  } finally {
    await found.close();
  }
};

/** How many documents a statement deletes that may have 90 KB each, and for how many holders a process deletes at once. */
const DELETED_AT_ONCE = 50;
const DELETIONS_AT_ONCE = 2;
/** Small documents take less, and then there is no rest. */
const SHORT_DELETION_MS = 10;
const deletions = withRests(createSlots(oneEach(DELETIONS_AT_ONCE), UNBOUNDED), (ms) =>
  ms > SHORT_DELETION_MS ? restAsLong(ms) : 0,
);
/** How long a request waits for a deletion that may go on after its answer. */
export const DELETED_WITHIN_MS = 5_000;

type Deletion<Row extends { _id: string }> = Pick<Batches<Row>, 'collection' | 'filter' | 'until'> & {
  /** Whose documents these are. */
  holder: string;
  onDeleted?: (ids: Row['_id'][]) => Promise<unknown>;
};

/**
 * Deletes all matching documents, of which a holder may have a gigabyte. MongoDB keeps what a statement deletes in its
 * cache until it has written it, and lets other statements write it if that is too much. So a statement deletes few
 * documents, the holders take turns for the places, and a place stays taken for a rest as long as its statement took. An
 * index should have the filter and `_id`, so that MongoDB does not read the documents twice.
 */
export const deleteInBatches = <Row extends { _id: string }>({
  holder,
  onDeleted,
  ...matching
}: Deletion<Row>): Promise<void> =>
  inBatches({ ...matching, maxItems: DELETED_AT_ONCE }, (some, ids) =>
    workInSlot(deletions, holder, async () => {
      await matching.collection.deleteMany(some);
      await onDeleted?.(ids);
    }),
  );

type UpTo = { key: string; bound: number; waitMs?: number };

/**
 * Deletes what is below a bound, such as old versions of a key's rows. One deletion runs for each key, because several
 * would all delete the same rows; a higher bound raises its bound. The wait ends after `waitMs` and the deletion goes on.
 * What fails is left to the next one.
 */
export const createDeletionsUpTo = () => {
  const running = new Map<string, { bound: number; done?: Promise<void> }>();

  const run = async (key: string, one: { bound: number }, deleteBelow: (bound: number) => Promise<void>) => {
    try {
      for (let reached = -1; reached < one.bound; ) {
        reached = one.bound; // a later caller may raise it meanwhile
        await deleteBelow(reached);
      }
    } finally {
      running.delete(key);
    }
  };

  return async (
    { key, bound, waitMs = DELETED_WITHIN_MS }: UpTo,
    deleteBelow: (bound: number) => Promise<void>,
  ): Promise<void> => {
    const one = running.get(key) ?? { bound };
    one.bound = Math.max(one.bound, bound);
    running.set(key, one);
    one.done ??= run(key, one, deleteBelow);
    await withDeadline(one.done, waitMs).catch(() => undefined);
  };
};

/** A row with its entry may have tens of kilobytes, so only this many are decoded at once. */
const DECODED_AT_ONCE = 5;

/** The rows of a cursor in small lists, so that other work runs between decoding them. */
export async function* inPages<Row>(
  rows: mongo.FindCursor<Row>,
  atOnce = DECODED_AT_ONCE,
): AsyncGenerator<Row[], undefined> {
  const slices = createSlices();
  while (await rows.hasNext()) {
    yield rows.readBufferedDocuments(atOnce);
    if (slices.isOver()) await slices.next();
  }
}

/** How long one who has a place reads on, and how many bytes, before others have it. */
const PART_MS = 200;
const PART_BYTES = 1_000_000;

/**
 * Joins small pages, for a reader who takes a place for each part. With a place for each page, a long list would wait
 * behind the long reads of others hundreds of times.
 */
export async function* inParts<Row>(
  pages: AsyncGenerator<Row[], undefined>,
  bytesOf: (row: Row) => number,
): AsyncGenerator<Row[], undefined> {
  let [part, bytes, until]: [Row[], number, number] = [[], 0, performance.now() + PART_MS];
  for await (const page of pages) {
    part.push(...page);
    for (const row of page) bytes += bytesOf(row);
    if (bytes < PART_BYTES && performance.now() < until) continue;
    yield part;
    [part, bytes, until] = [[], 0, performance.now() + PART_MS];
  }
  if (part.length > 0) yield part;
}

/** The rows of a cursor, read like this for so long. `isCut`: there may be more. */
export const collectFor = async <Row>(
  ms: number,
  rows: mongo.FindCursor<Row>,
  atOnce?: number,
): Promise<{ read: Row[]; isCut: boolean }> => {
  const until = performance.now() + ms;
  const read: Row[] = [];
  try {
    for await (const page of inPages(rows, atOnce)) {
      read.push(...page);
      if (performance.now() > until) return { read, isCut: true };
    }
    return { read, isCut: false };
  } finally {
    await rows.close();
  }
};

/** All rows of a cursor, read like this. */
export const collect = async <Row>(rows: mongo.FindCursor<Row>, atOnce?: number): Promise<Row[]> =>
  (await collectFor(Number.POSITIVE_INFINITY, rows, atOnce)).read;

type Bound<Row extends { _id: string }> = {
  collection: mongo.Collection<Row>;
  filter: mongo.Filter<Row>;
  max: number;
  tooMany: () => Error;
};

/** Inserts a row, unless more than `max` rows would then match `filter`. */
export const insertAtMost = async <Row extends { _id: string }>(
  { collection, filter, max, tooMany }: Bound<Row>,
  row: Row,
): Promise<void> => {
  const count = () => collection.countDocuments(filter, { limit: max + 1 });
  if ((await count()) >= max) throw tooMany();
  await collection.insertOne(row as mongo.OptionalUnlessRequiredId<Row>, { writeConcern: DURABLE });
  // Others may have inserted rows at the same time. If there are too many now, this one is withdrawn, and perhaps
  // theirs too.
  if ((await count()) <= max) return;
  await collection.deleteOne({ _id: row._id } as mongo.Filter<Row>, { writeConcern: DURABLE });
  throw tooMany();
};
