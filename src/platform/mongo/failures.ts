import mongoose from 'mongoose';
import { ItemFailure } from '../process/batch.ts';
import { unavailable } from '../process/errors.ts';

export const DUPLICATE_KEY = 11000;

/** A write was sent, and its outcome is unknown. Read the document to find out. */
export class OutcomeUnknown extends Error {
  override name = 'OutcomeUnknown';
}

const NEVER_SENT = new Set([
  'MongoServerSelectionError',
  'MongoNotConnectedError',
  'MongoTopologyClosedError',
  'MongoPoolClearedError',
  'MongoPoolClosedError',
  'MongoWaitQueueTimeoutError',
]);

const CONNECTION_LOST = new Set(['MongoNetworkError', 'MongoNetworkTimeoutError', 'PoolClearedOnNetworkError']);

/** Error codes of a server that is not the primary. */
const NOT_PRIMARY = new Set([10058, 10107, 13435, 13436]);
/** Error codes of an operation that was interrupted because the server steps down or stops. */
const INTERRUPTED = new Set([91, 189, 11600, 11602]);

/**
 * The failure of one statement in a batch. A server that steps down interrupts single statements. Such a statement may
 * already have been written.
 */
export const toItemFailure = ({ code }: { code: number }): ItemFailure =>
  new ItemFailure(
    NOT_PRIMARY.has(code) || INTERRUPTED.has(code)
      ? new OutcomeUnknown(`a statement was broken off (code ${code})`)
      : new StatementRefused(code),
  );

/** A statement of a batch that the server refused. */
class StatementRefused extends Error {
  override name = 'StatementRefused';
  readonly code: number;
  constructor(code: number) {
    super(`MongoDB refused a statement (code ${code})`);
    this.code = code;
  }
}

/**
 * Error codes of a server that refuses commands until an administrator has mended the cause (hints.ts): the database's
 * user lacks a right, this user is unknown, or the disk is full.
 */
const REFUSED = new Set([13, 18, 14031]);

const codeOf = (cause: unknown): number =>
  cause instanceof mongoose.mongo.MongoServerError || cause instanceof StatementRefused ? Number(cause.code) : 0;

/** True when the server refused a whole command because it is not the primary. */
export const wasNotPrimary = (cause: unknown): boolean => NOT_PRIMARY.has(codeOf(cause));

/**
 * True when the driver never sent the command. After a raw command, this means that nothing was written. A retryable
 * write of the driver can fail in the same way although its first try was sent.
 */
export const wasNeverSent = (cause: unknown): boolean =>
  cause instanceof Error &&
  (NEVER_SENT.has(cause.name) || (cause as { beforeHandshake?: boolean }).beforeHandshake === true);

/** True when the server refused a command, and refuses all others like it. Nothing was written. */
export const wasRefused = (cause: unknown): boolean => REFUSED.has(codeOf(cause));

/**
 * True when MongoDB is unavailable, is changing its primary, or refuses all commands of this kind. False for a wrong
 * command. If the failed command is a write, its outcome may be unknown.
 */
export const isMongoUnavailable = (cause: unknown): boolean =>
  wasNeverSent(cause) ||
  wasRefused(cause) ||
  cause instanceof OutcomeUnknown ||
  NOT_PRIMARY.has(codeOf(cause)) ||
  INTERRUPTED.has(codeOf(cause)) ||
  (cause instanceof Error && CONNECTION_LOST.has(cause.name));

/** True when the driver or the server has given the failure one of these labels. */
export const hasLabel = (cause: unknown, ...labels: string[]): boolean =>
  cause instanceof mongoose.mongo.MongoError && labels.some((label) => cause.hasErrorLabel(label));

/** True when a read exceeded its `maxTimeMS`. */
export const exceededTimeLimit = (cause: unknown): boolean =>
  (cause as { codeName?: string } | null)?.codeName === 'MaxTimeMSExpired';

/** What a caller is told of a failure before the first write of a request: a read that was lost or too slow is 503. */
export const failureBeforeWriting = (cause: unknown): unknown =>
  isMongoUnavailable(cause) || exceededTimeLimit(cause) ? unavailable(cause) : cause;

export const isDuplicateKey = (cause: unknown): boolean =>
  typeof cause === 'object' && cause !== null && (cause as { code?: unknown }).code === DUPLICATE_KEY;
