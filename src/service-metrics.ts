import type { CountEmbedding } from '@parley/understanding';
import { countHeard, QUEUES, workersOf } from './alerts/queue-state.ts';
import type { LimitKind } from './assistants/rate-limit.ts';
import type { ReportEventWait } from './events/sending/deliver.ts';
import type { CountDelivery } from './events/sending/dispatch.ts';
import { serverNow } from './platform/process/clock.ts';
import type { Metrics } from './platform/process/metrics.ts';
import type { CountTurn } from './replies/answer-turn.ts';
import type { CountBudgetUsedUp } from './replies/engines/openai/engine.ts';
import type { Service } from './service.ts';
import type { Repetition } from './turns/start-turn.ts';

/** Counts the turns that a reply worker ends. */
export const countTurns = (metrics: Metrics): CountTurn => {
  const labels = {
    outcome:
      '`answered` by an engine, `handoff` to a person, `held` (a person has the conversation), `merged` (the reply is that of a later message), `failed`',
  };
  const ended = metrics.counter({ name: 'parley_turns_total', help: 'Ended turns.', labels });
  const took = metrics.histogram({
    name: 'parley_reply_seconds',
    help: 'Time from the acceptance of a turn to its stored reply.',
    labels: { outcome: 'the same' },
  });
  return (outcome, seconds) => {
    ended({ outcome });
    took({ outcome }, seconds);
  };
};

/** Counts the turns whose call of a provider did not fit into the budget. */
export const countBudgetUsedUp = (metrics: Metrics): CountBudgetUsedUp => {
  const counted = metrics.counter({
    name: 'parley_budget_used_up_total',
    help: 'Turns without a provider, because the tokens of the day were used up.',
    labels: { instead: 'what happened: `retrieval` or `hand_over`' },
  });
  return (instead) => counted({ instead });
};

/** Counts the texts that a worker embeds. */
export const countEmbeddings = (metrics: Metrics): CountEmbedding => {
  const ended = metrics.counter({
    name: 'parley_embeddings_total',
    help: 'Texts to embed.',
    labels: {
      kind: '`query` or `passage`',
      result:
        'with a vector `made`, `cached`, `joined`, `shared` (by another process); without one `busy` (a turn would have waited too long), `full` (the queue), `late` (for the turn), `failed`, `unavailable` (no model)',
    },
  });
  return (kind, result, count = 1) => ended({ kind, result }, count);
};

/** Counts the pages of sources, by how they ended. */
export const countPages = (metrics: Metrics): ((outcome: string) => void) => {
  const ended = metrics.counter({
    name: 'parley_source_pages_total',
    help: 'Pages of sources.',
    labels: {
      outcome:
        '`read`, `unchanged`, `skipped` (forbidden, or no text), `missing`, `failed` (its passages stay as they are)',
    },
  });
  return (outcome) => ended({ outcome });
};

/** Counts every delivery when the delivery ends. Used by both kinds of workers. */
export const countDeliveries = (metrics: Metrics): CountDelivery => {
  const ended = metrics.counter({
    name: 'parley_deliveries_total',
    help: 'Ended deliveries.',
    labels: {
      outcome: '`delivered`, `rejected`, `not_sent`, `unknown`',
      kind: 'an [error kind](receiving-webhooks.md#what-each-outcome-means), or `none`',
    },
  });
  return ({ outcome, errorKind }, count = 1) => ended({ outcome, kind: errorKind ?? 'none' }, count);
};

/** Bucket limits in seconds. An event that waits longer than `EVENT_MAX_AGE_S`, by default 600, is not sent. */
const EVENT_WAITS = [0.1, 1, 5, 15, 30, 60, 120, 300, 450, 600];

/** Reports how long each sent event waited. The events of paused and slow endpoints are included. */
export const reportEventWaits = (metrics: Metrics): ReportEventWait => {
  const waited = metrics.histogram({
    name: 'parley_event_wait_seconds',
    help: 'Time from an event to the start of its delivery, without tests and resends.',
    labels: {},
    buckets: EVENT_WAITS,
  });
  return (seconds) => waited({}, seconds);
};

/** Counts repeated requests, and requests that were refused because of a limit or overload. */
export const countRequests = (metrics: Metrics) => {
  const repeated = metrics.counter({
    name: 'parley_repeated_requests_total',
    help: 'Requests that repeat a turn.',
    labels: { kind: '`joined`, `replayed`, `resumed`, `keyed` (an idempotency key)' },
  });
  const refused = metrics.counter({
    name: 'parley_refused_requests_total',
    help: 'Requests refused with 429, or with 503 in an overload.',
    labels: {
      limit:
        '`key`, `channel`, `visitor` (messages of a session), `quota`, `poll` (long polls), `failing`, `anonymous`, `sign_in`, `playground`, `token`, `session` (20 pending), `overload`',
    },
  });
  const answered = metrics.histogram({
    name: 'parley_turn_request_seconds',
    help: 'Time from the headers of a request with a message to the end of its response.',
    labels: { status: 'the HTTP status' },
  });
  return {
    turnAnswered: (status: number, seconds: number): void => answered({ status: String(status) }, seconds),
    repeated: (kind: Repetition): void => repeated({ kind }),
    refused: (limit: LimitKind | 'session' | 'quota' | 'overload'): void => refused({ limit }),
  };
};

/**
 * Reports the number of jobs in the queues. Every process reports the same values, so aggregate with the maximum, not
 * the sum.
 */
export const sampleQueues = (metrics: Metrics, service: Service): void => {
  metrics.sampled(
    {
      name: 'parley_queue_jobs',
      help: 'Jobs of a queue.',
      labels: {
        queue: '`turns`, `deliveries`, `knowledge`, `sources`',
        state: '`waiting`, `active`, `delayed`, `failed`',
      },
    },
    async () => {
      const counted = await Promise.all(
        QUEUES.map(async (queue) =>
          Object.entries(await service.queues[queue].countJobs()).map(([state, value]) => ({
            labels: { queue, state },
            value,
          })),
        ),
      );
      return counted.flat();
    },
  );
  metrics.sampled(
    {
      name: 'parley_queue_age_seconds',
      help: 'How long the oldest waiting job has waited.',
      labels: { queue: '`turns`, `deliveries`, `knowledge`, `sources`' },
    },
    () =>
      Promise.all(
        QUEUES.map(async (queue) => {
          const at = await service.queues[queue].oldestWaitingAt();
          return { labels: { queue }, value: at === null ? 0 : Math.max(0, serverNow() - at) / 1000 };
        }),
      ),
  );
  metrics.sampled(
    {
      name: 'parley_queue_workers',
      help: 'Workers of a queue: a `silent` one is frozen or was killed less than 15 minutes ago.',
      labels: {
        queue: '`turns`, `deliveries`, `knowledge`, `sources`',
        state: '`heard` in the last 45 s, or `silent`',
      },
    },
    async () => {
      const signs = await service.aside.workerSigns.listHeard();
      return QUEUES.flatMap((queue) =>
        Object.entries(countHeard(workersOf(queue, signs))).map(([state, value]) => ({
          labels: { queue, state },
          value,
        })),
      );
    },
  );
};
