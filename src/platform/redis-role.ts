/**
 * How a connection behaves while Redis is unavailable or silent. `api`: commands fail, so that a caller gets 503 in
 * time. `worker`: commands wait for Redis, as BullMQ's blocking reads require, until the process stops. `subscriber`:
 * pub/sub only.
 */
export type RedisRole = 'api' | 'worker' | 'subscriber';

/**
 * How long a server may leave a command unanswered. Callers of a process with the role `api` must get an answer within
 * a second.
 */
export const SILENT_AFTER_MS = { api: 800, worker: 3_000, subscriber: 1_600 } as const;

/**
 * How long the connection on which BullMQ waits for jobs may be silent. This limit must exceed BullMQ's longest wait
 * (10 s).
 */
export const BLOCKED_FOR_MS = 13_000;

export const CONNECT_WITHIN_MS = 2_000;

export const retryStrategy = (attempt: number): number => Math.min(50 * 2 ** Math.min(attempt, 5), 1000);
