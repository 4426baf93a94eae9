import type { mongo } from 'mongoose';
import {
  conversationModels,
  type Message,
  PAGE_SIZE,
  type RecentTurn,
  type StoredConversation,
  type StoredPage,
} from '../../src/conversations/conversation.ts';
import { initialState } from '../../src/conversations/state.ts';
import { newRecord } from '../../src/events/claims.ts';
import { deliveryModel, neverSent, type StoredDelivery } from '../../src/events/delivery.ts';
import { conversationKeyOf, newPrefixedId, newId } from '../../src/platform/process/ids.ts';
import { buildIndexes, collectionOf } from '../../src/platform/mongo/mongo.ts';
import { type BenchAssistant, type Parley, QUESTIONS } from './parley.ts';

const DAY_MS = 86_400_000;
const BATCH = 1000;
const RECENT = 20;
/**
 * Consecutive documents get numbers this far apart, modulo the count. So documents with neighbouring numbers lie far
 * apart in the collection. The step has no common divisor with the counts in use, so that each number occurs once.
 */
const STRIDE = 7919;

type Owner = Pick<BenchAssistant, 'assistantId' | 'sessionKey' | 'sessionPrefix'>;

const messagesOf = (turnId: string, number: number, createdAt: Date): Message[] => [
  {
    messageId: newId(),
    turnId,
    role: 'user',
    content: `${QUESTIONS[number % QUESTIONS.length]} (${number})`,
    language: 'en',
    createdAt,
  },
  {
    messageId: newId(),
    turnId,
    role: 'assistant',
    content: `Answer ${number}: open the settings, choose the feature and save it; it works from the next message on.`,
    language: 'en',
    why: { engine: 'retrieval', entryId: newId(), confidence: 0.93 },
    createdAt,
  },
];

/**
 * A conversation document after `turns` turns, as the service leaves it: the document has only the newest messages and
 * recent turns. Full pages of older messages are in another collection.
 */
export const conversationAfter = (owner: Owner, nth: number, turns: number) => {
  const { assistantId, sessionKey, sessionPrefix } = owner;
  const sessionId = `${sessionPrefix}-${nth}`;
  const _id = conversationKeyOf({ sessionKey, sessionId, playground: false });
  const conversationId = newPrefixedId(_id);
  const createdAt = new Date(Date.now() - DAY_MS - (nth % 1000) * 60_000);
  const entries = Array.from({ length: turns }, (_, index) => {
    const turnId = newPrefixedId(_id);
    return { seq: index + 1, turnId, messages: messagesOf(turnId, nth + index, createdAt) };
  });
  const paged = turns - (turns % PAGE_SIZE);
  const pages = Array.from({ length: paged / PAGE_SIZE }, (_, page): StoredPage => {
    const own = entries.slice(page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
    return {
      _id: `${conversationId}:${String(page).padStart(12, '0')}`,
      conversationId,
      entries: own.map(({ seq, messages }) => ({ seq, messages })),
    };
  });
  const recent = entries.slice(-RECENT).map(
    ({ seq, turnId, messages }): RecentTurn => ({
      turnId,
      messageId: messages[0]?.messageId ?? '',
      dedupeKey: turnId.replaceAll('-', ''),
      outcome: 'answered',
      seq,
      replySeq: seq,
      replyMessageId: messages[1]?.messageId ?? '',
      finishedAt: createdAt,
    }),
  );
  const conversation: StoredConversation = {
    _id,
    conversationId,
    assistantId,
    sessionId,
    channel: 'api',
    language: 'en',
    ...initialState(),
    seq: turns,
    storedTo: paged,
    headSince: createdAt,
    waiting: [],
    recent,
    texts: Object.fromEntries(entries.slice(paged).map(({ seq, messages }) => [String(seq), messages])),
    createdAt,
    updatedAt: createdAt,
  };
  return { conversation, pages };
};

export const RARE_ENDPOINT = '7d1f3b52-6a0e-4c3f-9b1d-2f0a8e5c4d11';
const RARE_EACH = 30;

/** The rare values of some of the oldest deliveries. They are the worst case for a filter over a million deliveries. */
const rarityOf = (nth: number, total: number): Partial<StoredDelivery> => {
  if (nth >= total - RARE_EACH) return { endpointId: RARE_ENDPOINT };
  if (nth >= total - 2 * RARE_EACH) return { event: 'webhook.test' };
  if (nth >= total - 3 * RARE_EACH) return { outcome: 'rejected', status: 404 };
  return nth % 100 === 1 ? { outcome: 'rejected', status: 500 } : {};
};

const deliveryOf = (assistantId: string, nth: number, total: number): StoredDelivery => {
  const happenedAt = new Date(Date.now() - DAY_MS - nth * 50);
  const claim = {
    eventId: newId(),
    endpointId: '0b9a52f4-58e3-4d1c-8a55-1c7f6f0e2a90',
    assistantId,
    conversationId: newId(),
    event: 'message.received' as const,
    url: 'https://hooks.example.com/parley',
    body: JSON.stringify({ event: 'message.received', payload: { content: QUESTIONS[nth % QUESTIONS.length] } }),
    happenedAt,
  };
  const ended = neverSent('timeout');
  const exchange =
    nth % 40 === 0
      ? { ...ended, outcome: 'unknown' as const }
      : { ...ended, outcome: 'delivered' as const, errorKind: null, status: 200, responseBody: 'ok' };
  const record = newRecord(claim, { worker: 'bench', retentionDays: 30 });
  return { ...record, ...exchange, ...rarityOf(nth, total), createdAt: happenedAt, endedAt: happenedAt };
};

/** Inserts documents without waiting until they are on disk, because the data is temporary. */
const insert = async <Stored extends { _id: string }>(collection: mongo.Collection<Stored>, documents: Stored[]) => {
  if (documents.length === 0) return;
  await collection.insertMany(documents as mongo.OptionalUnlessRequiredId<Stored>[], {
    ordered: false,
    writeConcern: { w: 1, j: false },
  });
};

/** Fills a database with the data of years of use. The indexes are built afterwards, because that is faster. */
export const fill = async (
  { service }: Parley,
  owner: Owner,
  {
    conversations: count,
    turnsEach,
    deliveries: deliveryCount,
    vary = () => ({}),
  }: Record<'conversations' | 'turnsEach' | 'deliveries', number> & {
    /** Fields of the nth conversation that differ from the others. */
    vary?: (nth: number) => Partial<StoredConversation>;
  },
): Promise<void> => {
  const models = conversationModels(service.mongo);
  const [conversations, pages] = [
    collectionOf<StoredConversation>(models.conversations),
    collectionOf<StoredPage>(models.messages),
  ];
  const deliveries = collectionOf<StoredDelivery>(deliveryModel(service.mongo));
  for (const collection of [conversations, deliveries]) await collection.dropIndexes();

  // The next batch is built while the previous one is being stored.
  let last: Promise<unknown> = Promise.resolve();
  const inBatches = async (total: number, store: (numbers: number[]) => Promise<unknown>): Promise<void> => {
    for (let start = 0; start < total; start += BATCH) {
      const stored = store(Array.from({ length: Math.min(BATCH, total - start) }, (_, index) => start + index));
      await last;
      last = stored;
    }
    await last;
  };
  await inBatches(count, (numbers) => {
    const nths = numbers.map((nth) => (nth * STRIDE) % count);
    const made = nths.map((nth) => ({ nth, ...conversationAfter(owner, nth, turnsEach) }));
    const stored = made.map(({ nth, conversation }) => ({ ...conversation, ...vary(nth) }));
    return Promise.all([
      insert(conversations, stored),
      insert(
        pages,
        made.flatMap((one) => one.pages),
      ),
    ]);
  });
  await inBatches(deliveryCount, (numbers) =>
    insert(
      deliveries,
      numbers.map((nth) => deliveryOf(owner.assistantId, nth, deliveryCount)),
    ),
  );
  await buildIndexes(service.mongo, [...service.conversations.models, ...service.deliveries.models]);
};

/** Bytes on disk, with indexes, per turn (conversations and messages together) and per delivery. */
export const sizesOf = async ({ service }: Parley, count: { turns: number; deliveries: number }) => {
  const { db } = service.mongo;
  if (!db) throw new Error('MongoDB is not connected');
  await db.admin().command({ fsync: 1 }); // the files grow at a checkpoint
  const bytesOf = async (collection: string): Promise<number> => {
    const stats = await db.command({ collStats: collection });
    return Number(stats['storageSize']) + Number(stats['totalIndexSize']);
  };
  const conversations = (await bytesOf('conversations')) + (await bytesOf('messages'));
  return { turn: conversations / count.turns, delivery: (await bytesOf('deliveries')) / count.deliveries };
};
