/** A refusal should reach its caller within this time. */
export const REFUSED_WITHIN_MS = 2_500;

/** What the generator of a load gets as JSON. */
export type LoadSettings = {
  port: number;
  apiKey: string;
  assistantId: string;
  channelToken: string;
  /**
   * `rate`: turns a second, whatever the answers (open loop). `inFlight`: always so many (closed loop). `atOnce`: one
   * turn of each of so many sessions, all at the same moment.
   */
  pace: { rate: number } | { inFlight: number } | { atOnce: number };
  seconds: number;
  sessions: number;
  sessionPrefix: string;
  questions: string[];
  /** Left out: the service detects it. */
  language?: string;
  /** Send a refused message again after the time in `Retry-After`, until it is accepted. */
  retry: boolean;
  /** Where the generator writes what it was told. */
  toldFile: string;
};

/** How a message ended that may be stored: with the reply's id, with 202, or unknown because no answer came. */
type ToldTurn = [message: string, end: { messageId: string } | 'accepted' | 'unknown'];
/** The turns of one session, in the order in which they were sent. A session has one request in flight at a time. */
export type ToldSession = { conversationId: string | null; turns: ToldTurn[] };
export type Told = Record<string, ToldSession>;

export type Quantiles = { count: number; p50: number; p99: number; max: number };

export type LoadResult = {
  sent: number;
  statuses: Record<string, number>;
  /** Connections that closed before an answer. */
  lost: number;
  /** Requests that were not sent because all connections were in use. */
  skipped: number;
  refusedWithoutRetryAfter: number;
  refusedInTime: number;
  /** From the bytes written to the first bytes of the answer, in ms. */
  answered: Quantiles;
  refused: Quantiles;
  /** When the generator began and stopped to send, in ms since the epoch. */
  startedAt: number;
  endedAt: number;
  /** Every answered or refused turn, when it was sent (ms since the epoch). Empty for a large load. */
  samples: { sentAt: number; ms: number; status: number }[];
  /** How late the timers of the generator ran, in ms. The times above contain it. */
  generatorLag: { p99: number; max: number };
};
