import { setTimeout as sleep } from 'node:timers/promises';
import mongoose, { type ClientSession, type Connection, type mongo } from 'mongoose';
import { hasLabel } from '../platform/mongo/failures.ts';
import { transact } from '../platform/mongo/mongo.ts';
import type { SourceLease } from './source.ts';

/** A lease on a source: while it holds, only its worker writes. */
export type RunLease = { sourceId: string; token: string };

/**
 * Another worker has the lease now, or the source was removed. What is not written yet must not be written any more.
 */
export class RunLost extends Error {
  override name = 'RunLost';
}

const TRIES_OF_WRITE = 6;

/** The sessions in which the holders of leases write. */
type LeaseSessions = {
  /**
   * A transaction of the holder, which is repeated if it meets another one, each time after `again`. Throws `RunLost` if
   * the lease has ended.
   */
  transactAs: <Result>(
    token: string,
    write: (session: ClientSession) => Promise<Result>,
    again?: () => Promise<unknown>,
  ) => Promise<Result>;

  /** True while a transaction of the holder goes on in this process. */
  isWriting: (token: string) => boolean;

  /** Opens the session of a lease. Returns its id, which is stored with the lease. */
  openSession: (token: string) => Promise<string>;

  closeSession: (token: string) => Promise<void>;

  /** Ends the session of the lease's last holder, and its transaction. */
  killSession: (lease: Pick<SourceLease, 'session'> | undefined) => Promise<void>;
};

/**
 * A transaction whose process was killed would lock what it wrote for a minute. So its session is stored with the
 * lease, and the next worker that takes the lease ends the session.
 */
export const createLeaseSessions = (connection: Connection): LeaseSessions => {
  const sessions = new Map<string, ClientSession>();

  return {
    transactAs: async (token, write, again) => {
      const session = sessions.get(token);
      if (!session) throw new RunLost('the lease has ended');
      for (let tries = 1; ; tries += 1) {
        try {
          return await transact(session, write);
        } catch (cause) {
          const isTransient = hasLabel(cause, 'TransientTransactionError', 'UnknownTransactionCommitResult');
          if (!isTransient || tries === TRIES_OF_WRITE) throw cause;
          await sleep(Math.random() * 20 * 2 ** tries);
          await again?.();
        }
      }
    },

    isWriting: (token) => sessions.get(token)?.inTransaction() === true,

    openSession: async (token) => {
      const session = await connection.startSession();
      sessions.set(token, session);
      return (session.id as { id: mongo.Binary }).id.toUUID().toString();
    },

    closeSession: async (token) => {
      const session = sessions.get(token);
      sessions.delete(token);
      await session?.endSession();
    },

    killSession: async (lease) => {
      if (lease?.session === undefined) return;
      const id = new mongoose.mongo.UUID(lease.session);
      await connection.db?.admin().command({ killSessions: [{ id }] });
    },
  };
};
