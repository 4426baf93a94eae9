import { createConnection } from 'mongoose';
import { eventually } from './eventually.ts';
import type { Stack } from './stack.ts';

/** A statement as MongoDB ran it, with its plan and what it read. */
export type Profiled = {
  ns: string;
  op: string;
  /** When it ended, and how many milliseconds it took. */
  ts: Date;
  millis: number;
  command: Record<string, unknown>;
  originatingCommand?: Record<string, unknown>;
  planSummary?: string;
  queryHash?: string;
  docsExamined?: number;
  keysExamined?: number;
  nreturned?: number;
  nMatched?: number;
  ndeleted?: number;
  responseLength?: number;
};

/** The name under which tests connect, so that their own statements are left out. */
export const OWN = 'the tests';
/** A connection whose statements `profileStatements` leaves out. */
export const connectUnprofiled = (stack: Stack) =>
  createConnection(stack.env['MONGODB_URL'] ?? '', { appName: OWN }).asPromise();
const KEPT_BYTES = 128 * 1024 * 1024;

/**
 * Runs `work`, and returns every statement that the service has sent meanwhile, from all of its processes. MongoDB’s
 * profiler records them, so nothing is left out and nothing is estimated.
 */
export const profileStatements = async (stack: Stack, work: () => Promise<unknown>): Promise<Profiled[]> => {
  const connection = await connectUnprofiled(stack);
  const database = connection.getClient().db();
  try {
    // A statement that ends after an earlier profile was dropped makes the collection again.
    await eventually(async () => {
      await database.collection('system.profile').drop();
      await database.createCollection('system.profile', { capped: true, size: KEPT_BYTES });
    });
    await database.command({ profile: 2 });
    await work();
    await database.command({ profile: 0 });
    const ofService = { appName: { $ne: OWN }, ns: { $not: /\.system\./ } };
    return await database.collection<Profiled>('system.profile').find(ofService).toArray();
  } finally {
    await database.command({ profile: 0 }); // after a failure it still runs
    await database.collection('system.profile').drop();
    await connection.close();
  }
};

export const collectionIn = ({ ns }: Profiled): string => ns.slice(ns.indexOf('.') + 1);

/** How many documents and index keys a statement read. */
export const examinedBy = ({ docsExamined = 0, keysExamined = 0 }: Profiled): number => docsExamined + keysExamined;
