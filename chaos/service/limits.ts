import { TIMING } from '../../src/platform/process/time-limits.ts';

/** How long a fault pauses a process: longer than every lease and than the time after which a claim counts as lost. */
export const PAUSE_MS = Math.max(TIMING.claimLostMs, TIMING.turnLeaseMs) + 3_000;

const SLACK_MS = 17_000;
/** A request may arrive at a paused API process and then wait for its reply, so a visitor waits longer than both. */
export const PATIENCE_MS = PAUSE_MS + TIMING.replyTimeoutMs + SLACK_MS;

/** The default of an assistant: how long the service replays an answer to the same message. */
const REPLAYED_FOR_MS = 60_000;
const SENDING_MS = 2_000;
/**
 * A message is repeated for so long. The last repetition may arrive at a paused process, and the service must still
 * know the answer then. A later one would be a new turn.
 */
export const RETRY_FOR_MS = REPLAYED_FOR_MS - PAUSE_MS - SENDING_MS;
