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

  /** What `$unset` removes. */
  ended: { [path]: '' } as Record<Path, ''>,
});
