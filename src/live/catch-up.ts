import type { Connection } from 'mongoose';
import { type Changes, isPositionLost, openChangeFeed } from './change-feed.ts';
import { merge } from './recent-changes.ts';

/** A browser that missed more conversations than this loads its lists again instead. */
export const MISSED_MAX = 2_000;
const WITHIN_MS = 5_000;
const READ_MS = 500;

/**
 * Reads the changes between two positions from MongoDB. Null if they are no longer stored, are too many, or take too
 * long to read: the browser then has to load everything again.
 */
export const readMissed = async (connection: Connection, from: string, until: string): Promise<Changes | null> => {
  const deadline = performance.now() + WITHIN_MS;
  let missed: Changes = { keys: [], erased: [], position: from };
  try {
    const feed = await openChangeFeed(connection, from);
    try {
      while (missed.position < until) {
        const changes = await feed.read(READ_MS);
        missed = merge([missed, changes], changes.position);
        if (missed.keys.length > MISSED_MAX || performance.now() > deadline) return null;
      }
    } finally {
      await feed.close();
    }
  } catch (cause) {
    if (isPositionLost(cause)) return null;
    throw cause;
  }
  return missed;
};
