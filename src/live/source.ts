import { setTimeout as sleep } from 'node:timers/promises';
import { type Connection, mongo } from 'mongoose';
import { withDeadline } from '../platform/deadline.ts';
import type { Logger } from '../platform/logger.ts';
import { isMongoUnavailable } from '../platform/mongo-failures.ts';
import {
  type ChangeFeed,
  type Changes,
  createRecentChanges,
  openChangeFeed,
  PositionLost,
  type RecentChanges,
} from './change-feed.ts';

/** The time in which changes are gathered before their rows are read. */
const GATHER_MS = 200;
const WAIT_MS = 2_000;
const RETRY_MS = 250;
const STOPPED_WITHIN_MS = 500;
/** An error of MongoDB that comes back this often has to do with the position. */
const REFUSALS_MAX = 4;

export type Source = { connection: Connection; recent: RecentChanges; stop: () => Promise<void> };

type Options = {
  /** Opens the connection of the change streams. It is closed with the source. */
  connect: () => Promise<Connection>;
  /** Runs work after everything else that is sent to browsers. */
  inTurn: <Value>(work: () => Promise<Value>) => Promise<Value>;
  onChanges: (changes: Changes) => Promise<void>;
  /** Changes before this position may be missing. */
  onLost: (position: string) => void;
  readWithinMs?: number;
  logger: Logger;
};

/**
 * Reads the change stream until it is stopped. After a failure it continues at the last changes that were sent, so none
 * is missing. If MongoDB cannot continue there, it starts again at the present.
 */
export const openSource = async ({
  connect,
  inTurn,
  onChanges,
  onLost,
  readWithinMs,
  logger,
}: Options): Promise<Source> => {
  const connection = await connect();
  const first = await openChangeFeed(connection, null).catch(async (cause: unknown) => {
    await connection.destroy().catch(() => undefined);
    throw cause;
  });
  let feed: ChangeFeed | null = first;
  const recent = createRecentChanges(first.position);
  const source: Source = { connection, recent, stop: async () => undefined };
  let [stopped, failing, refusals] = [false, false, 0];

  const startAgain = async (): Promise<void> => {
    const opened = await openChangeFeed(connection, null);
    feed = opened;
    await inTurn(async () => {
      source.recent = createRecentChanges(opened.position);
      onLost(opened.position);
    });
  };

  const isLost = (cause: unknown): boolean => {
    if (cause instanceof PositionLost) return true;
    const isRefused = cause instanceof mongo.MongoServerError && !isMongoUnavailable(cause);
    refusals = isRefused ? refusals + 1 : 0;
    return refusals >= REFUSALS_MAX;
  };

  const step = async (): Promise<void> => {
    feed ??= await openChangeFeed(connection, source.recent.newest());
    const changes = await feed.read(WAIT_MS, readWithinMs);
    await inTurn(async () => {
      await onChanges(changes);
      source.recent.add(changes);
    });
    [failing, refusals] = [false, 0];
    if (changes.keys.length + changes.erased.length > 0) await sleep(GATHER_MS);
  };

  const recover = async (cause: unknown): Promise<void> => {
    if (!failing) logger.warn({ err: cause }, 'the change stream of the live updates failed');
    failing = true;
    await feed?.close().catch(() => undefined);
    feed = null;
    await sleep(RETRY_MS);
    // If this fails too, the next step fails in the same way and comes back here.
    if (isLost(cause) && !stopped) await startAgain().catch(() => undefined);
  };

  const run = async (): Promise<void> => {
    while (!stopped) await step().catch((cause: unknown) => (stopped ? undefined : recover(cause)));
    await feed?.close();
  };
  const ended = run();

  source.stop = async () => {
    stopped = true;
    await feed?.close();
    await withDeadline(ended, STOPPED_WITHIN_MS).catch(() => undefined);
    await withDeadline(connection.destroy(), STOPPED_WITHIN_MS).catch(() => undefined);
  };
  return source;
};
