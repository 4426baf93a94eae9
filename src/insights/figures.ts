import { LRUCache } from 'lru-cache';
import type { Connection, Model, mongo } from 'mongoose';
import * as z from 'zod';
import type { Entry, Message } from '../conversations/conversation.ts';
import { readSystemMessage } from '../conversations/state.ts';
import { exceededTimeLimit } from '../platform/mongo/failures.ts';
import { collectionOf, schemaOf } from '../platform/mongo/mongo.ts';
import { HOUR_MS, serverNow } from '../platform/process/clock.ts';
import type { Logger } from '../platform/process/logger.ts';
import { createSlices } from '../platform/process/slices.ts';

/** The part of a reply's `why` that the figures need. Engines may store more. */
const Why = z.object({
  engine: z.string().optional(),
  kind: z.string().optional(),
  by: z.string().optional(),
  unsure: z.boolean().optional(),
  fallBack: z.unknown().optional(),
  error: z.string().optional(),
});

/** How a reply ended, as the figures count it. */
export const REPLY_OUTCOMES = [
  /** Replies with an answer: from the knowledge or by a provider. */
  'answered',
  /** Replies with an answer that may be the wrong one, together with other questions. */
  'hedged',
  /** Replies that offered several questions. */
  'offered',
  /** Turns without an answer: the assistant was not sure, knew nothing, or failed. */
  'notAnswered',
  /** Small talk, contact details, requests for a person and refused messages. */
  'other',
  /** Messages that waited for a person, because the conversation was escalated. */
  'held',
] as const;
export type ReplyOutcome = (typeof REPLY_OUTCOMES)[number];

const OUTCOME_OF_KIND: Readonly<Record<string, ReplyOutcome>> = {
  answer: 'answered',
  hedge: 'hedged',
  askBack: 'offered',
  unsure: 'notAnswered',
  noKnowledge: 'notAnswered',
};

type Why = z.infer<typeof Why>;

const outcomeOf = ({ engine, kind, unsure, error }: Why): ReplyOutcome => {
  if (error !== undefined || unsure === true) return 'notAnswered';
  // A provider's reply has no kind.
  if (kind === undefined) return engine === undefined ? 'other' : 'answered';
  return Object.hasOwn(OUTCOME_OF_KIND, kind) ? (OUTCOME_OF_KIND[kind] ?? 'other') : 'other';
};

/** `byWordsOnly`: the reply was found by words alone, because the model had no time for it or was not available. */
type ReadReply = { outcome: ReplyOutcome; engineFailed: boolean; byWordsOnly: boolean };

/** How a reply was decided, read from its `why`. A holding text of an escalated conversation has no `why`. */
export const readReply = ({ why }: Pick<Message, 'why'>): ReadReply => {
  if (why === undefined) return { outcome: 'held', engineFailed: false, byWordsOnly: false };
  const read = Why.safeParse(why).data ?? {};
  const engineFailed = read.error !== undefined || read.fallBack !== undefined;
  return { outcome: outcomeOf(read), engineFailed, byWordsOnly: read.by === 'words only' };
};

const reasonOf = (reason: string): CountedReason => ESCALATION_REASONS.find((known) => known === reason) ?? 'other';

/** The names of the counters that a message of an entry raises by one. */
export const countersOf = (message: Message, entry: Entry): string[] => {
  switch (message.role) {
    case 'user': {
      if (message.heldBy) return ['turns', 'held'];
      if (message.mergedInto) return ['turns']; // the last message of its group counts the reply
      const isAnswered = entry.messages.some(({ role, turnId }) => role === 'assistant' && turnId === message.turnId);
      return isAnswered ? ['turns'] : ['turns', 'notAnswered'];
    }
    case 'assistant': {
      if (message.turnId === null) return []; // not the reply of a turn
      const { outcome, engineFailed, byWordsOnly } = readReply(message);
      const visitor = entry.messages.find(({ role, turnId }) => role === 'user' && turnId === message.turnId);
      return [
        outcome,
        ...(engineFailed ? ['engineErrors'] : []),
        ...(byWordsOnly ? ['byWordsOnly'] : []),
        ...(visitor ? [`buckets.${bucketOf(message.createdAt.getTime() - visitor.createdAt.getTime())}`] : []),
      ];
    }
    case 'operator':
      return ['operatorReplies'];
    case 'system': {
      const event = readSystemMessage(message.content);
      if (event?.kind === 'handoff') return [`escalated.${reasonOf(event.reason)}`];
      return event?.kind === 'handBack' ? ['handedBack'] : [];
    }
  }
};

/** By how much these messages raise the figures of their hours. */
export const countMessages = (assistantId: string, entries: Entry[]): Increment[] =>
  entries.flatMap((entry) =>
    entry.messages.flatMap((message): Increment[] => {
      const names = countersOf(message, entry);
      const counts = Object.fromEntries(names.map((name) => [name, 1]));
      return names.length > 0 ? [{ assistantId, hour: hourOf(message.createdAt), counts }] : [];
    }),
  );

const KEPT_S = 400 * 86_400;

/** What is counted per assistant and hour. A message counts in the hour in which it was written. */
export const COUNTERS = [
  'turns',
  ...REPLY_OUTCOMES,
  /** Replies that an engine or a provider failed to make. */
  'engineErrors',
  /** Replies that were found by words alone, because the model had no time for them or was not available. */
  'byWordsOnly',
  'operatorReplies',
  'handedBack',
  'resolved',
  /** Knowledge entries that were made from a miss. */
  'taught',
] as const;
export type Counter = (typeof COUNTERS)[number];

/** The reasons for an escalation that are counted one by one. All others count as `other`. */
export const ESCALATION_REASONS = [
  'user_requested',
  'low_confidence',
  'engine_error',
  'contact_details',
  'manual',
  'other',
] as const;
export type CountedReason = (typeof ESCALATION_REASONS)[number];

/** Each reply that is not a holding text raises one of these counters. */
const REPLIES = ['answered', 'hedged', 'offered', 'notAnswered', 'other'] as const;

type Counts = Partial<Record<Counter, number>> & {
  escalated?: Partial<Record<CountedReason, number>>;
  /** The number of replies by reply time: `buckets[n]` counts the times up to `bucketLimitMs(n)`. */
  buckets?: Record<string, number>;
};
export type StoredFigures = Counts & {
  _id: string;
  assistantId: string;
  hour: Date;
  /** The deliveries of this hour by outcome, once all have ended. */
  deliveries?: Record<'delivered' | 'rejected' | 'not_sent' | 'unknown', number>;
};

/** Buckets grow by a quarter, so that a percentile is at most a quarter too high. */
const GROWTH = 1.25;
const LAST_BUCKET = 60; // ten minutes

export const bucketOf = (ms: number): number =>
  Math.min(LAST_BUCKET, Math.max(0, Math.ceil(Math.log(Math.max(1, ms)) / Math.log(GROWTH))));

export const bucketLimitMs = (bucket: number): number => Math.round(GROWTH ** bucket);

const FAILED = 'failed';

const schema = schemaOf<StoredFigures>('figures');
schema.index({ assistantId: 1, hour: 1 });
schema.index({ hour: 1 }, { expireAfterSeconds: KEPT_S });
/** Contains only hours with failures, so that other hours cost nothing. */
schema.index({ hour: 1, engineErrors: 1 }, { name: FAILED, partialFilterExpression: { engineErrors: { $gte: 1 } } });

export const hourOf = (at: Date): Date => new Date(Math.floor(at.getTime() / HOUR_MS) * HOUR_MS);

/** The names of the counters that change, for `$inc`. `escalated` and `buckets` are reached by dotted names. */
export type Increment = { assistantId: string; hour: Date; counts: Record<string, number> };

export const incrementId = ({ assistantId, hour }: Pick<Increment, 'assistantId' | 'hour'>): string =>
  `${assistantId}:${hour.toISOString().slice(0, 13)}`;

/** The updates for some increments. Several increments of one hour become one update. */
export const incrementsOf = (increments: Increment[]): mongo.AnyBulkWriteOperation<StoredFigures>[] => {
  const byId = new Map<string, Increment>();
  for (const one of increments) {
    const id = incrementId(one);
    const sum = byId.get(id) ?? { ...one, counts: {} };
    for (const [name, count] of Object.entries(one.counts)) sum.counts[name] = (sum.counts[name] ?? 0) + count;
    byId.set(id, sum);
  }
  return [...byId].map(([_id, { assistantId, hour, counts }]) => ({
    updateOne: { filter: { _id }, update: { $inc: counts, $setOnInsert: { assistantId, hour } }, upsert: true },
  }));
};

/** How many hours come in one answer of MongoDB. */
const HOURS_AT_ONCE = 200;

/** The hourly figures of all assistants. */
export type Figures = {
  model: Model<StoredFigures>;

  /** The hours with figures from `from` on and before `to`, oldest first. */
  listHours: (assistantId: string, range: { from: Date; to?: Date }) => Promise<StoredFigures[]>;

  increment: (one: Increment) => Promise<void>;

  /**
   * Assistants that match `assistantId` and had at least `least` engine errors since a time, if these are at least
   * `share` of the replies in the hours with errors. The most errors first.
   */
  listFailing: (wanted: {
    since: Date;
    least: number;
    share: number;
    assistantId: { $in: string[] } | { $nin: string[] };
    limit: number;
  }) => Promise<{ assistantId: string; engineErrors: number; replies: number }[]>;
};

export const createFigures = (connection: Connection): Figures => {
  const model = connection.model<StoredFigures>('Figures', schema);
  const figures = collectionOf(model);
  return {
    model,

    listHours: async (assistantId, { from, to }) => {
      const hour = { $gte: hourOf(from), ...(to && { $lt: to }) };
      const slices = createSlices();
      const found: StoredFigures[] = [];
      for await (const row of figures.find({ assistantId, hour }, { sort: { hour: 1 }, batchSize: HOURS_AT_ONCE })) {
        found.push(row);
        if (slices.isOver()) await slices.next();
      }
      return found;
    },

    increment: async (one) => {
      await figures.bulkWrite(incrementsOf([one]));
    },

    listFailing: ({ since, least, share, assistantId, limit }) =>
      figures
        .aggregate<{ assistantId: string; engineErrors: number; replies: number }>(
          [
            { $match: { hour: { $gte: hourOf(since) }, engineErrors: { $gte: 1 }, assistantId } },
            {
              $group: {
                _id: '$assistantId',
                engineErrors: { $sum: '$engineErrors' },
                replies: { $sum: { $add: REPLIES.map((name) => ({ $ifNull: [`$${name}`, 0] })) } },
              },
            },
            {
              $match: {
                engineErrors: { $gte: least },
                $expr: { $gte: ['$engineErrors', { $multiply: [share, '$replies'] }] },
              },
            },
            { $sort: { engineErrors: -1 } },
            { $limit: limit },
            { $project: { _id: 0, assistantId: '$_id', engineErrors: 1, replies: 1 } },
          ],
          { hint: FAILED },
        )
        .toArray(),
  };
};

/** An hour is counted this long after its end, because all of its deliveries have ended then. */
const ENDED_AFTER_MS = 15 * 60_000;
const KEPT_MS = 30 * 24 * HOUR_MS;
/**
 * One step counts the deliveries of at most this time, so that it ends soon even for an assistant with a million
 * deliveries.
 */
const STEP_MS = 24 * HOUR_MS;
/** How long one call of `countEnded` may work. */
const WORK_MS = 250;
/** Bounded without `max`, for which the cache would reserve memory for all entries at the start. */
const REMEMBERED = { maxSize: 10_000, sizeCalculation: () => 1 };

export type OutcomeCounts = Record<'delivered' | 'rejected' | 'not_sent' | 'unknown', number>;
type CountHours = (
  assistantId: string,
  range: { from: Date; to: Date },
) => Promise<{ hour: Date; outcomes: OutcomeCounts }[]>;

/** The last hour whose deliveries have all ended. */
export const lastEndedHour = (): Date => new Date(Math.floor((serverNow() - ENDED_AFTER_MS) / HOUR_MS) * HOUR_MS);

const idOf = (assistantId: string): string => `deliveries:${assistantId}`;

/**
 * Copies the counts of ended deliveries into the hourly figures, from the records. Counting an hour again gives the
 * same result, so no transaction is needed.
 */
export type DeliveryFigures = {
  /** The time up to which an assistant's deliveries are counted. */
  countedTo: (assistantId: string) => Promise<Date | null>;

  /**
   * Counts hours of these assistants, step by step, until its time is up. Assistants take turns, and a count that
   * fails stops no other assistant's. True if all hours are counted.
   */
  countEnded: (
    assistantIds: string[],
    countHours: CountHours,
    options: { draining: AbortSignal; logger: Logger },
  ) => Promise<boolean>;
};

export const createDeliveryFigures = (connection: Connection, figures: Figures): DeliveryFigures => {
  const hours = collectionOf(figures.model);
  const positions = connection.collection<{ _id: string; to: Date }>('projection');
  /** When an assistant's deliveries were last counted here. Losing an entry only changes the order. */
  const triedAt = new LRUCache<string, number>(REMEMBERED);
  /** Assistants whose deliveries of a whole day took too long to count. They are counted hour by hour. */
  const slow = new LRUCache<string, true>(REMEMBERED);

  const store = async (assistantId: string, counted: Awaited<ReturnType<CountHours>>): Promise<void> => {
    if (counted.length === 0) return;
    await hours.bulkWrite(
      counted.map(({ hour, outcomes }) => ({
        updateOne: {
          filter: { _id: incrementId({ assistantId, hour }) },
          update: { $set: { deliveries: outcomes }, $setOnInsert: { assistantId, hour } } as Partial<StoredFigures>,
          upsert: true,
        },
      })),
    );
  };

  return {
    countedTo: async (assistantId) => (await positions.findOne({ _id: idOf(assistantId) }))?.to ?? null,

    countEnded: async (assistantIds, countHours, { draining, logger }) => {
      const end = lastEndedHour();
      const known = await positions.find({ _id: { $in: assistantIds.map(idOf) } }).toArray();
      const countedTo = new Map(known.map(({ _id, to }) => [_id, to]));
      const until = performance.now() + WORK_MS;
      const positionOf = (assistantId: string): Date =>
        countedTo.get(idOf(assistantId)) ?? new Date(end.getTime() - KEPT_MS);
      let hasFailed = false;
      // The one that has waited longest comes first, so that all of them get their turn over several calls.
      let behind = assistantIds
        .filter((id) => positionOf(id) < end)
        .toSorted((a, b) => (triedAt.get(a) ?? 0) - (triedAt.get(b) ?? 0));
      while (behind.length > 0) {
        for (const assistantId of behind) {
          if (draining.aborted || performance.now() > until) return false;
          triedAt.set(assistantId, performance.now());
          const from = positionOf(assistantId);
          const to = new Date(Math.min(end.getTime(), from.getTime() + (slow.has(assistantId) ? HOUR_MS : STEP_MS)));
          try {
            await store(assistantId, await countHours(assistantId, { from, to }));
            await positions.updateOne({ _id: idOf(assistantId) }, { $set: { to } }, { upsert: true });
            countedTo.set(idOf(assistantId), to);
          } catch (cause) {
            hasFailed = true;
            if (exceededTimeLimit(cause)) slow.set(assistantId, true);
            countedTo.set(idOf(assistantId), end); // not again in this call
            logger.warn({ err: cause, assistantId }, 'deliveries were not counted; the next round tries again');
          }
        }
        behind = behind.filter((id) => positionOf(id) < end);
      }
      return !hasFailed;
    },
  };
};
