import { setTimeout as sleep } from 'node:timers/promises';
import type { Service } from '../../src/service.ts';
import type { Delivery, Histories, Seen, StoredMessage } from './history.ts';

const CONVERGED_WITHIN_MS = 60_000;
const LOOK_EVERY_MS = 250;
/** The service erases once more after a minute, by a job that runs every minute. */
const ERASED_WITHIN_MS = 130_000;

export type Evidence = {
  /** The messages of each session as its caller reads them, oldest first. */
  stored: Map<string, StoredMessage[]>;
  deliveries: Delivery[];
  /** Names of collections that still contain something of an erased conversation. */
  leftOfErased: { session: string; where: string }[];
  /** What was not finished a minute after the last fault. Empty if everything converged. */
  unfinished: string[];
  /** From the end of the last fault until all visitors had their answers and no work was left. */
  convergedMs: number;
};

/** Counts what is not finished: pending turns, pending events, and deliveries without an outcome. */
export const findUnfinished = async ({ mongo }: Service): Promise<string[]> => {
  const conversations = mongo.collection('conversations');
  const [turns, events, deliveries] = await Promise.all([
    conversations.countDocuments({ 'waiting.0': { $exists: true } }),
    conversations.countDocuments({ 'outbox.0': { $exists: true } }),
    mongo.collection('deliveries').countDocuments({ outcome: { $in: ['queued', 'sending'] } }),
  ]);
  const counts = { 'pending turns': turns, 'pending events': events, 'open deliveries': deliveries };
  return Object.entries(counts).flatMap(([what, count]) => (count > 0 ? [`${count} ${what}`] : []));
};

/** Waits until no work is left. Returns what is left a minute after the last fault. */
const converge = async (
  service: Service,
  calmSince: number,
): Promise<{ unfinished: string[]; convergedMs: number }> => {
  for (;;) {
    const unfinished = await findUnfinished(service);
    const convergedMs = performance.now() - calmSince;
    if (convergedMs > CONVERGED_WITHIN_MS) {
      const late = `visitors and work ended only after ${Math.round(convergedMs / 1000)} s`;
      return { unfinished: unfinished.length > 0 ? unfinished : [late], convergedMs };
    }
    if (unfinished.length === 0) return { unfinished, convergedMs };
    await sleep(LOOK_EVERY_MS);
  }
};

type Page = { messages: StoredMessage[]; hasMore: boolean; nextCursor: string | null };

/** Reads a conversation through the API, oldest message first. */
export const readHistory = async (api: string, apiKey: string, conversationId: string): Promise<StoredMessage[]> => {
  const messages: StoredMessage[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const query = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const response = await fetch(`${api}/api/v1/conversations/${conversationId}?limit=500${query}`, {
      headers: { Authorization: `Bearer ${apiKey}` },
    });
    if (!response.ok) throw new Error(`the history of ${conversationId} was answered with ${response.status}`);
    const page = (await response.json()) as Page;
    messages.push(...page.messages);
    cursor = page.hasMore ? page.nextCursor : null;
  }
  return messages;
};

/** What may stay: that it was erased, and who did what. Neither contains a text of the conversation. */
const MAY_STAY = new Set(['tombstones', 'audit']);
/** The records of deliveries stay too, without bodies and responses. The event that tells of the erasure has no text. */
const TEXTS: Record<string, object> = {
  deliveries: {
    event: { $ne: 'conversation.erased' },
    $or: [{ body: { $type: 'string' } }, { responseBody: { $type: 'string' } }],
  },
};

/** Looks into every collection, so that a new one is not forgotten. */
const findLeft = async ({ mongo }: Service, histories: Histories): Promise<Evidence['leftOfErased']> => {
  const collections = (await mongo.db?.collections())?.map(({ collectionName }) => collectionName) ?? [];
  const left: Evidence['leftOfErased'] = [];
  for (const [session, { erased, conversationId }] of histories.sessions) {
    if (!erased || !conversationId) continue;
    const fields = ['conversationId', '_id', 'examples.conversationId'].map((name) => ({ [name]: conversationId }));
    for (const where of collections.filter((name) => !MAY_STAY.has(name))) {
      const count = await mongo.collection(where).countDocuments({ $and: [{ $or: fields }, TEXTS[where] ?? {}] });
      if (count > 0) left.push({ session, where });
    }
  }
  return left;
};

/** A worker that died while it projected a conversation may leave words of it, until the service erases once more. */
const waitForErasures = async (service: Service, histories: Histories): Promise<Evidence['leftOfErased']> => {
  const until = performance.now() + ERASED_WITHIN_MS;
  for (;;) {
    const left = await findLeft(service, histories);
    if (left.length === 0 || performance.now() > until) return left;
    await sleep(LOOK_EVERY_MS);
  }
};

type From = {
  api: string;
  keyOf: (assistantId: string) => string;
  histories: Histories;
  /** When the last fault ended. */
  calmSince: number;
};

/** A visitor that never got a reply does not know its conversation, but messages may be stored. */
const findConversations = async ({ mongo }: Service, { sessions }: Histories): Promise<void> => {
  const unknown = [...sessions].filter(([, { conversationId }]) => conversationId === null);
  for (const [sessionId, session] of unknown) {
    const filter = { sessionId, assistantId: session.assistantId };
    const row = await mongo.collection('conversations').findOne(filter, { projection: { conversationId: 1 } });
    session.conversationId = (row?.['conversationId'] as string | undefined) ?? null;
  }
};

/** Reads everything that the rules need. Call it when the processes run and no fault is active. */
export const collect = async (service: Service, { api, keyOf, histories, calmSince }: From): Promise<Evidence> => {
  const convergence = await converge(service, calmSince);
  await findConversations(service, histories);
  const stored: Evidence['stored'] = new Map();
  for (const [session, { conversationId, assistantId, erased }] of histories.sessions) {
    if (erased) continue;
    stored.set(session, conversationId ? await readHistory(api, keyOf(assistantId), conversationId) : []);
  }
  const projection = { eventId: 1, endpointId: 1, conversationId: 1, event: 1, outcome: 1, errorKind: 1, body: 1 };
  const rows = await service.mongo.collection('deliveries').find({}, { projection }).toArray();
  const deliveries = rows.map(({ _id, ...row }) => ({ ...row, deliveryId: String(_id) }) as unknown as Delivery);
  return { stored, deliveries, leftOfErased: await waitForErasures(service, histories), ...convergence };
};

export type Endpoint = { endpointId: string; assistantId: string; good: boolean; seen: Seen[] };
export type EventsEvidence = Pick<Evidence, 'stored' | 'deliveries'> & { endpoints: Endpoint[]; histories: Histories };

export type Own = {
  endpoint: Endpoint;
  deliveries: Delivery[];
  sessionOf: (conversationId: string) => string;
} & EventsEvidence;
export type Rule = (own: Own) => { session: string; what: string }[];
