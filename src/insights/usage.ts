import type { Connection, Model, mongo } from 'mongoose';
import * as z from 'zod';
import type { Entry, Message } from '../conversations/conversation.ts';
import { DAY_MS } from '../platform/process/clock.ts';
import { inPages } from '../platform/mongo/batches.ts';
import { collectionOf, schemaOf } from '../platform/mongo/mongo.ts';
import { countersOf, REPLY_OUTCOMES } from './figures.ts';

/** What is counted for each assistant, key and day. All but the tokens are counted like the figures. */
export const USAGE_COUNTERS = [
  'turns',
  ...REPLY_OUTCOMES,
  /** Replies for which a provider reported its tokens. */
  'providerReplies',
  'promptTokens',
  'completionTokens',
] as const;
export type UsageCounter = (typeof USAGE_COUNTERS)[number];
const COUNTED: ReadonlySet<string> = new Set(USAGE_COUNTERS);

type Counts = Partial<Record<UsageCounter, number>>;
/** `keyId`: null for turns that came without an API key. `day` begins at midnight UTC. */
type StoredUsage = Counts & { _id: string; assistantId: string; keyId: string | null; day: Date };

/** The tokens that a provider reported for a reply. */
const WithTokens = z.object({
  usage: z.object({ prompt: z.int().min(0), completion: z.int().min(0) }),
});

const tokensOf = ({ why }: Message): Counts => {
  const read = WithTokens.safeParse(why).data;
  if (!read) return {};
  const { prompt, completion } = read.usage;
  return { providerReplies: 1, promptTokens: prompt, completionTokens: completion };
};

export const dayOf = (at: Date): Date => new Date(Math.floor(at.getTime() / DAY_MS) * DAY_MS);

export type UsageIncrement = Pick<StoredUsage, 'assistantId' | 'keyId' | 'day'> & { counts: Counts };

/** What the messages of some entries add to the usage of their days. A reply counts for the key of its turn. */
export const countUsage = (assistantId: string, entries: Entry[]): UsageIncrement[] =>
  entries.flatMap((entry) =>
    entry.messages.flatMap((message): UsageIncrement[] => {
      if (message.role !== 'user' && message.role !== 'assistant') return [];
      const names = countersOf(message, entry).filter((name) => COUNTED.has(name));
      if (names.length === 0) return [];
      const visitor = entry.messages.find(({ role, turnId }) => role === 'user' && turnId === message.turnId);
      const keyId = message.keyId ?? visitor?.keyId ?? null;
      const counts = { ...Object.fromEntries(names.map((name) => [name, 1])), ...tokensOf(message) };
      return [{ assistantId, keyId, day: dayOf(message.createdAt), counts }];
    }),
  );

const idOf = ({ assistantId, keyId, day }: Omit<UsageIncrement, 'counts'>): string =>
  `${assistantId}:${day.toISOString().slice(0, 10)}:${keyId ?? ''}`;

/** The updates for some increments. Several increments of one day and key become one update. */
export const usageUpdatesOf = (increments: UsageIncrement[]): mongo.AnyBulkWriteOperation<StoredUsage>[] =>
  [...Map.groupBy(increments, idOf)].map(([_id, some]) => {
    const sum: Counts = {};
    for (const { counts } of some)
      for (const name of USAGE_COUNTERS) if (counts[name]) sum[name] = (sum[name] ?? 0) + counts[name];
    const { assistantId, keyId, day } = some[0] as UsageIncrement; // a group is never empty
    return {
      updateOne: {
        filter: { _id },
        update: { $inc: sum, $setOnInsert: { assistantId, keyId, day } } as Partial<StoredUsage>,
        upsert: true,
      },
    };
  });

const KEPT_S = 400 * 86_400;
const ROWS_AT_ONCE = 100;

const schema = schemaOf<StoredUsage>('usage');
schema.index({ assistantId: 1, day: 1 });
schema.index({ day: 1 }, { expireAfterSeconds: KEPT_S });

export type DayRange = { from: Date; to: Date };

/**
 * What each key of an assistant used, by day (UTC). The projection counts it from stored messages in the transaction
 * that counts the figures, so each message counts once.
 */
export type Usage = {
  model: Model<StoredUsage>;

  /** Sums of the days from `from` to before `to`, by day or by key. */
  sumBy: <By extends 'day' | 'keyId'>(
    by: By,
    assistantId: string,
    range: DayRange,
  ) => Promise<(Record<UsageCounter, number> & { _id: StoredUsage[By] })[]>;

  /** The usage of each key on each day, in pages, the oldest day first. */
  streamDays: (assistantId: string, range: DayRange) => AsyncGenerator<StoredUsage[], undefined>;
};

export const createUsage = (connection: Connection): Usage => {
  const model = connection.model<StoredUsage>('Usage', schema);
  const usage = collectionOf(model);
  return {
    model,

    sumBy: (by, assistantId, { from, to }) =>
      usage
        .aggregate<never>([
          { $match: { assistantId, day: { $gte: from, $lt: to } } },
          {
            $group: {
              _id: `$${by}`,
              ...Object.fromEntries(USAGE_COUNTERS.map((name) => [name, { $sum: `$${name}` }])),
            },
          },
        ])
        .toArray(),

    streamDays: (assistantId, { from, to }) =>
      inPages(
        usage.find({ assistantId, day: { $gte: from, $lt: to } }, { sort: { day: 1 }, batchSize: ROWS_AT_ONCE }),
        ROWS_AT_ONCE,
      ),
  };
};
