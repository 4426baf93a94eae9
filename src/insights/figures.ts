import { type Connection, type mongo, Schema, type Model } from 'mongoose';
import * as z from 'zod';
import type { Entry, Message } from '../conversations/conversation.ts';
import { readSystemMessage } from '../conversations/transitions.ts';
import { collectionOf } from '../mongo/mongo.ts';

/** The part of a reply's `why` that the figures need. Engines may store more. */
const Why = z.object({
  engine: z.string().optional(),
  kind: z.string().optional(),
  by: z.string().optional(),
  unsure: z.boolean().optional(),
  fallBack: z.unknown().optional(),
  error: z.string().optional(),
});

type ReplyOutcome = Extract<Counter, 'answered' | 'hedged' | 'offered' | 'notAnswered' | 'other' | 'held'>;

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

/** `byWordsOnly`: the reply was found by words alone, because the model had no time for it or was not there. */
type ReadReply = { outcome: ReplyOutcome; engineFailed: boolean; byWordsOnly: boolean };

/** How a reply was decided, read from its `why`. A holding text of an escalated conversation has no `why`. */
export const readReply = ({ why }: Message): ReadReply => {
  if (why === undefined) return { outcome: 'held', engineFailed: false, byWordsOnly: false };
  const read = Why.safeParse(why).data ?? {};
  const engineFailed = read.error !== undefined || read.fallBack !== undefined;
  return { outcome: outcomeOf(read), engineFailed, byWordsOnly: read.by === 'words only' };
};

const reasonOf = (reason: string): CountedReason => ESCALATION_REASONS.find((known) => known === reason) ?? 'other';

/** The names of the counters that a message of an entry adds one to. */
export const countersOf = (message: Message, entry: Entry): string[] => {
  switch (message.role) {
    case 'user': {
      if (message.heldBy) return ['turns', 'held'];
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

/** What the messages of some entries add to the figures of their hours. */
export const countMessages = (assistantId: string, entries: Entry[]): Increment[] =>
  entries.flatMap((entry) =>
    entry.messages.flatMap((message): Increment[] => {
      const names = countersOf(message, entry);
      const counts = Object.fromEntries(names.map((name) => [name, 1]));
      return names.length > 0 ? [{ assistantId, hour: hourOf(message.createdAt), counts }] : [];
    }),
  );

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;
const KEPT_S = 400 * 86_400;

/** What is counted per assistant and hour. A message counts in the hour in which it was written. */
export const COUNTERS = [
  'turns',
  /** Replies with an answer: from the knowledge or by a provider. */
  'answered',
  /** Replies with an answer that may not be meant, and other questions. */
  'hedged',
  /** Replies that offered several questions. */
  'offered',
  /** Turns without an answer: the assistant was not sure, knew nothing, or failed. */
  'notAnswered',
  /** Small talk, contact details, requests for a person and refused messages. */
  'other',
  /** Messages that waited for a person, because the conversation was escalated. */
  'held',
  /** Replies that an engine or a provider failed to make. */
  'engineErrors',
  /** Replies that were found by words alone, because the model had no time for them or was not there. */
  'byWordsOnly',
  'operatorReplies',
  'handedBack',
  'resolved',
  /** Knowledge entries that were made from a miss. */
  'taught',
] as const;
export type Counter = (typeof COUNTERS)[number];

/** The reasons for an escalation that are counted one by one. All others count as `other`. */
export const ESCALATION_REASONS = ['user_requested', 'low_confidence', 'engine_error', 'manual', 'other'] as const;
export type CountedReason = (typeof ESCALATION_REASONS)[number];

/** The counters of which each reply adds to one. */
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

const schema = new Schema<StoredFigures>(
  { _id: { type: String, required: true } },
  { collection: 'figures', versionKey: false, strict: false },
);
schema.index({ assistantId: 1, hour: 1 });
schema.index({ hour: 1 }, { expireAfterSeconds: KEPT_S });
/** Only hours with failures, so that what is well costs nothing. */
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

/** The hourly figures of all assistants. */
export type Figures = {
  model: Model<StoredFigures>;

  /** The hours with figures since a time, oldest first. */
  listHours: (assistantId: string, since: Date) => Promise<StoredFigures[]>;

  increment: (one: Increment) => Promise<void>;

  /** Assistants with engine errors since a time, the most first, with all replies of these hours. */
  listFailing: (
    since: Date,
    limit: number,
  ) => Promise<{ assistantId: string; engineErrors: number; replies: number }[]>;
};

export const createFigures = (connection: Connection): Figures => {
  const model = connection.model<StoredFigures>('Figures', schema);
  const figures = collectionOf(model);
  return {
    model,

    listHours: (assistantId, since) =>
      figures
        .find({ assistantId, hour: { $gte: hourOf(since) } })
        .sort({ hour: 1 })
        .toArray(),

    increment: async (one) => {
      await figures.bulkWrite(incrementsOf([one]));
    },

    listFailing: (since, limit) =>
      figures
        .aggregate<{ assistantId: string; engineErrors: number; replies: number }>(
          [
            { $match: { hour: { $gte: hourOf(since) }, engineErrors: { $gte: 1 } } },
            {
              $group: {
                _id: '$assistantId',
                engineErrors: { $sum: '$engineErrors' },
                replies: { $sum: { $add: REPLIES.map((name) => ({ $ifNull: [`$${name}`, 0] })) } },
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
