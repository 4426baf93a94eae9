import { type Connection, Schema } from 'mongoose';
import { serverDate } from '../platform/clock.ts';
import { collectionOf } from '../platform/mongo.ts';
import { isDuplicateKey } from '../platform/mongo-failures.ts';
import { type Lease, leaseIn } from '../platform/mongo-lease.ts';

/** How long a leader stays the leader without a round. After this time another worker continues. */
const LEASE_MS = 10_000;
const lease = leaseIn('lease', LEASE_MS);
const ID = 'projection';

/**
 * How far the projection has come. Changes up to `live` are projected. Conversations that had changed before the first
 * round are projected in the background, one assistant after the other, from the newest to the oldest: `back` is the
 * last one, or null when all are projected.
 */
export type ProjectionState = {
  _id: string;
  lease?: Lease;
  live: Date;
  back: { assistantId: string; at: Date; id: string } | null;
};

const schema = new Schema<ProjectionState>(
  { _id: { type: String, required: true } },
  { collection: 'projection', versionKey: false, strict: false },
);

/** Larger than every conversation key. */
export const LAST_KEY = '~';

/**
 * The lease of the worker that projects, and its position. All times come from MongoDB's clock. A worker that lost its
 * lease cannot move the position.
 */
export const createProjectionState = (connection: Connection) => {
  const model = connection.model<ProjectionState>('Projection', schema);
  const states = collectionOf(model);

  const acquire = (token: string): Promise<ProjectionState | null> =>
    states.findOneAndUpdate(
      { _id: ID, $or: [lease.heldBy(token), lease.free] },
      [{ $set: { lease: lease.renewed(token) } }],
      { returnDocument: 'after' },
    );

  return {
    model,

    /** Acquires or renews the lease. Null if another worker is the leader. */
    acquire: async (token: string): Promise<ProjectionState | null> => {
      const state = await acquire(token);
      if (state || (await states.findOne({ _id: ID }, { projection: { _id: 1 } }))) return state;
      const live = serverDate();
      const first: ProjectionState = { _id: ID, live, back: { assistantId: '', at: live, id: LAST_KEY } };
      await states.insertOne(first).catch((cause: unknown) => {
        if (!isDuplicateKey(cause)) throw cause;
      });
      return acquire(token);
    },

    /** Stores the position. False if the lease was lost. */
    advance: async (token: string, position: Pick<ProjectionState, 'live' | 'back'>): Promise<boolean> => {
      const { live, back } = position;
      const changed = await states.updateOne({ _id: ID, ...lease.heldBy(token) }, { $set: { live, back } });
      return changed.matchedCount === 1;
    },

    release: async (token: string): Promise<void> => {
      await states.updateOne({ _id: ID, ...lease.heldBy(token) }, { $unset: lease.ended });
    },
  };
};

export type ProjectionStates = ReturnType<typeof createProjectionState>;
