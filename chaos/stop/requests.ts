import type { Followed } from './followers.ts';
import type { Histories } from '../service/history.ts';

/**
 * How a request ended. `unavailable` is a 503: nothing was accepted. `not ready` is a `reply_timeout`: the turn goes on,
 * and the same request gets its reply. `no connection`: a new connection was refused or reset, so nothing was sent. `broken`: the
 * request was sent, and its connection ended before the whole response.
 */
const ENDS = ['answered', 'unavailable', 'not ready', 'no connection', 'broken', 'failed'] as const;
export type End = (typeof ENDS)[number];

const endOf = (attempt: string): End => {
  if (attempt === '200') return 'answered';
  if (attempt.startsWith('503')) return 'unavailable';
  if (attempt.includes('reply_timeout')) return 'not ready';
  if (attempt.includes(': connect E')) return 'no connection';
  const isBroken = attempt.startsWith('the stream ended') || /^(TypeError|Error):/.test(attempt);
  return isBroken ? 'broken' : 'failed';
};

export type Requests = {
  counts: Map<End, number>;
  /** The requests that were broken or failed, each in a sentence. */
  faulty: string[];
};

/** Counts every request of visitors, operators and followers by its end. */
export const countRequests = ({ sent, acted, sessions }: Histories, followed: Followed[]): Requests => {
  // The callers of an erased conversation rightly get 404.
  const lasting = sent.filter(({ session }) => !sessions.get(session)?.erased);
  const all = [
    ...lasting.flatMap(({ attempts, way, message }) =>
      attempts.map(({ result: attempt }) => ({ attempt, what: `${way} "${message}"` })),
    ),
    ...acted.map(({ action, status, failure }) => ({ attempt: failure ?? toAttempt(status), what: action })),
    ...followed.map(({ status, failure }) => ({ attempt: failure ?? toAttempt(status), what: 'long poll' })),
  ];
  const counts = new Map<End, number>(ENDS.map((end) => [end, 0]));
  const faulty: string[] = [];
  for (const { attempt, what } of all) {
    const end = endOf(attempt);
    counts.set(end, (counts.get(end) ?? 0) + 1);
    if (end === 'broken' || end === 'failed') faulty.push(`${what}: ${attempt}`);
  }
  return { counts, faulty };
};

/** Any answer below 500 was given by a process that works. */
const toAttempt = (status: number | null): string => (status !== null && status < 500 ? '200' : String(status));
