import { setTimeout as sleep } from 'node:timers/promises';
import type { Connection } from 'mongoose';
import { withDeadline } from '../platform/deadline.ts';
import type { Logger } from '../platform/logger.ts';
import { type ChangeFeed, type Changes, isPositionLost, openChangeFeed } from './change-feed.ts';
import { createRecentChanges, type RecentChanges } from './recent-changes.ts';

/** The time in which changes are gathered before their rows are read. */
const GATHER_MS = 200;
const WAIT_MS = 2_000;
const RETRY_MS = 250;
const STOPPED_WITHIN_MS = 500;

export type Source = { recent: RecentChanges; stop: () => Promise<void> };

type Options = {
  connection: Connection;
  /** Runs work after everything else that is sent to browsers. */
  inTurn: <Value>(work: () => Promise<Value>) => Promise<Value>;
  onChanges: (changes: Changes) => Promise<void>;
  /** Changes before this position may be missing. */
  onLost: (position: string) => void;
  logger: Logger;
};

/**
 * Reads the change stream until it is stopped. After a failure it continues at the last changes that were sent, so none
 * is missing. If MongoDB cannot continue there, it starts again at the present.
 */
export const openSource = async ({ connection, inTurn, onChanges, onLost, logger }: Options): Promise<Source> => {
  let feed: ChangeFeed | null = await openChangeFeed(connection, null);
  const source: Source = { recent: createRecentChanges((await feed.read(0)).position), stop: async () => undefined };
  let [stopped, failing] = [false, false];

  const startAgain = async (): Promise<void> => {
    feed = await openChangeFeed(connection, null);
    const { position } = await feed.read(0);
    source.recent = createRecentChanges(position);
    onLost(position);
  };

  const step = async (): Promise<void> => {
    feed ??= await openChangeFeed(connection, source.recent.newest());
    const changes = await feed.read(WAIT_MS);
    await inTurn(async () => {
      await onChanges(changes);
      source.recent.add(changes);
    });
    failing = false;
    if (changes.keys.length + changes.erased.length > 0) await sleep(GATHER_MS);
  };

  const recover = async (cause: unknown): Promise<void> => {
    if (!failing) logger.warn({ err: cause }, 'the change stream of the live updates failed');
    failing = true;
    await feed?.close().catch(() => undefined);
    feed = null;
    await sleep(RETRY_MS);
    // If this fails too, the next step fails in the same way and comes back here.
    if (isPositionLost(cause) && !stopped) await inTurn(startAgain).catch(() => undefined);
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
  };
  return source;
};
