import type { Connection, mongo } from 'mongoose';
import type { ChangedConversations, ReadConversation, ReadEntries } from '../conversations/changed-since.ts';
import type { Entry } from '../conversations/conversation.ts';
import type { Logger } from '../platform/process/logger.ts';
import { isMongoUnavailable } from '../platform/mongo/failures.ts';
import { inChunks } from '../platform/mongo/batches.ts';
import { collectionOf, inTransaction, readRows } from '../platform/mongo/mongo.ts';
import { createSlices, type Slices } from '../platform/process/slices.ts';
import { foldSession, type ProjectedConversation, searchModel, searchWordsOf } from './conversation-search.ts';
import { countMessages, type Figures, hourOf, type Increment, incrementsOf } from './figures.ts';
import { countUsage, type Usage, type UsageIncrement, usageUpdatesOf } from './usage.ts';
import { fitStep, type Finding, readLessons } from './misses.ts';
import type { PendingMisses } from './group-misses.ts';

/** At most this many words of a conversation are searchable. Only a conversation made to do harm has more. */
const MAX_TERMS = 5_000;

/** What the projection writes for one conversation. `isBehind`: it has more messages than were read. */
type Plan = {
  conversation: ReadConversation;
  /** The last `seq` that is projected after this step. */
  seq: number;
  cost: number;
  statement: mongo.AnyBulkWriteOperation<ProjectedConversation>;
  increments: Increment[];
  usage: UsageIncrement[];
  /** Stored by the projection's transaction, and learned later. */
  lessons: Finding[];
  isBehind: boolean;
};

/** What words cost, compared with a character that is read: a new one is an entry of an index, a known one is rewritten. */
const COST_OF_TERM = 30;
const COST_OF_KNOWN = 3;

/** Finds the words that are not stored yet. Other work of the process runs in between. */
const newTermsOf = async (
  entries: Entry[],
  { sessionId }: ReadConversation,
  known: string[],
  slices: Slices,
): Promise<{ terms: string[]; cost: number }> => {
  const all = new Set(known);
  const texts = entries.flatMap(({ messages }) =>
    messages.flatMap(({ role, content }) => (role === 'system' ? [] : [content])),
  );
  for (const text of known.length === 0 ? [sessionId, ...texts] : texts) {
    if (all.size >= MAX_TERMS) break;
    if (slices.isOver()) await slices.next();
    for (const word of searchWordsOf(text)) if (all.size < MAX_TERMS) all.add(word);
  }
  const terms = [...all].slice(known.length);
  const ofWords = COST_OF_TERM * terms.length + COST_OF_KNOWN * known.length;
  return { terms, cost: texts.reduce((sum, { length }) => sum + length, ofWords) };
};

const hasMissed = ({ kind }: Finding): boolean => kind === 'miss' || kind === 'rejected';

/** Answers before the first miss of a conversation teach nothing. */
const lessonsOf = (entries: Entry[], earlier: Entry[], before: ProjectedConversation | null): Finding[] => {
  const lessons = readLessons(entries, earlier);
  if (before?.hasMissed === true || before?.missId !== undefined) return lessons;
  const first = lessons.findIndex(hasMissed);
  return lessons.filter(({ kind }, nth) => kind !== 'answer' || (first !== -1 && nth > first));
};

/** True if the projection has already read this state of the conversation. */
const isCurrent = (read: ReadConversation, before: ProjectedConversation | null): boolean =>
  before !== null && before.seq >= read.seq && before.updatedAt.getTime() >= read.updatedAt.getTime();

/** Plans the next step of a conversation. The statement changes nothing if another worker has taken this step. */
const planProjection = async (
  conversation: ReadConversation,
  before: ProjectedConversation | null,
  read: ReadEntries,
): Promise<Plan> => {
  const slices = createSlices();
  const { entries, upTo } = fitStep(read);
  const { _id: key, conversationId, assistantId, sessionId, updatedAt } = conversation;
  const { terms, cost } = await newTermsOf(entries, conversation, before?.terms ?? [], slices);
  if (slices.isOver()) await slices.next();
  const lessons = lessonsOf(entries, read.earlier, before);
  const counted = before?.resolvedAt ?? null;
  const resolutions = (conversation.resolutions ?? []).filter((at) => counted === null || at > counted);
  const resolvedAt = resolutions.at(-1) ?? counted;
  const fields = { updatedAt, seq: upTo, resolvedAt, ...(lessons.some(hasMissed) && { hasMissed: true }) };
  const statement: Plan['statement'] = before
    ? {
        updateOne: {
          filter: { _id: conversationId, seq: before.seq, resolvedAt: counted },
          update: { $set: fields, ...(terms.length > 0 && { $push: { terms: { $each: terms } } }) },
        },
      }
    : {
        insertOne: {
          document: { _id: conversationId, key, assistantId, session: foldSession(sessionId), terms, ...fields },
        },
      };
  return {
    conversation,
    seq: upTo,
    cost,
    statement,
    increments: [
      ...countMessages(assistantId, entries),
      ...resolutions.map((at) => ({ assistantId, hour: hourOf(at), counts: { resolved: 1 } })),
    ],
    usage: countUsage(assistantId, entries),
    lessons,
    isBehind: upTo < conversation.seq,
  };
};

/** What a transaction may cost: it reads about this many characters, or stores ten thousand new words. */
const COST_AT_ONCE = 300_000;
/** How many stored conversations are read at once. The words of each may have a megabyte. */
const ROWS_AT_ONCE = 5;

/** A step that another worker has taken meanwhile. Nothing was written. */
class Overtaken extends Error {
  override name = 'Overtaken';
}

/**
 * `behind`: conversations with more messages than were read. `failed`: conversations that could not be projected. `costs`:
 * what each conversation cost of which something was read.
 */
type Projected = { behind: string[]; failed: string[]; costs: Map<string, number> };

type Dependencies = {
  connection: Connection;
  changed: ChangedConversations;
  figures: Figures;
  usage: Usage;
  pendingMisses: Pick<PendingMisses, 'add'>;
  erase: (conversationIds: string[]) => Promise<void>;
  logger: Logger;
};

/**
 * Projects some conversations: reads their new messages, and writes search words, figures and what is to be learned in
 * one transaction. The transaction is guarded by the last projected `seq` of each conversation, so each message counts
 * exactly once, even if two workers project at the same time.
 */
export type Project = (keys: string[]) => Promise<Projected>;

export const createProject = ({
  connection,
  changed,
  figures,
  usage,
  pendingMisses,
  erase,
  logger,
}: Dependencies): Project => {
  const rows = collectionOf<ProjectedConversation>(searchModel(connection));
  const hours = collectionOf(figures.model);
  const days = collectionOf(usage.model);

  const write = (plans: Plan[]): Promise<void> =>
    inTransaction(connection, async (session) => {
      const statements = plans.map(({ statement }) => statement);
      const { matchedCount, insertedCount } = await rows.bulkWrite(statements, { session });
      if (matchedCount + insertedCount !== plans.length) throw new Overtaken('another worker has projected this');
      const increments = incrementsOf(plans.flatMap((plan) => plan.increments));
      if (increments.length > 0) await hours.bulkWrite(increments, { session });
      const used = usageUpdatesOf(plans.flatMap((plan) => plan.usage));
      if (used.length > 0) await days.bulkWrite(used, { session });
      await pendingMisses.add(
        plans.map(({ conversation, seq, lessons }) => ({ ...conversation, seq, lessons })),
        session,
      );
    });

  const noteFailure = (cause: unknown, { conversationId, assistantId }: ReadConversation): void =>
    logger.warn({ err: cause, conversationId, assistantId }, 'a conversation was not projected');

  const plan = async (read: ReadConversation, before: ProjectedConversation | null): Promise<Plan> =>
    planProjection(read, before, await changed.readEntries(read, before?.seq ?? 0));

  /** Writes all plans together, or each on its own if that fails. So one bad conversation does not stop the others. */
  const writeAll = async (plans: Plan[]): Promise<Plan[]> => {
    if (plans.length === 0) return [];
    try {
      await write(plans);
      return [];
    } catch (cause) {
      if (isMongoUnavailable(cause)) throw cause;
      if (plans.length === 1) {
        for (const { conversation } of plans) noteFailure(cause, conversation);
        return plans;
      }
    }
    const failed: Plan[] = [];
    for (const one of plans) failed.push(...(await writeAll([one])));
    return failed;
  };

  return async (keys) => {
    const reads = (await changed.read(keys)).filter(({ channel }) => channel !== 'playground');
    const plans: Plan[] = [];
    const [failed, unread]: [string[], string[]] = [[], []];
    const costs = new Map<string, number>();
    let cost = 0;
    for (const some of inChunks(reads, ROWS_AT_ONCE)) {
      const ids = some.map(({ conversationId }) => conversationId);
      const known = cost > COST_AT_ONCE ? new Map<string, ProjectedConversation>() : await readRows(rows, ids, {});
      for (const read of some) {
        if (cost > COST_AT_ONCE) {
          unread.push(read._id);
          continue;
        }
        const before = known.get(read.conversationId) ?? null;
        if (isCurrent(read, before)) continue;
        try {
          const planned = await plan(read, before);
          cost += planned.cost;
          costs.set(read._id, planned.cost);
          plans.push(planned);
        } catch (cause) {
          if (isMongoUnavailable(cause)) throw cause;
          noteFailure(cause, read);
          failed.push(read._id);
        }
      }
    }
    const unwritten = new Set(await writeAll(plans));
    const written = plans.filter((one) => !unwritten.has(one));
    // If a conversation was erased after it was read here, its words are in the projection nevertheless. They are
    // erased now.
    const erased = await changed.findErased(written.map(({ conversation }) => conversation));
    if (erased.length > 0) await erase(erased);
    return {
      behind: [...unread, ...written.filter(({ isBehind }) => isBehind).map(({ conversation }) => conversation._id)],
      failed: [...failed, ...[...unwritten].map(({ conversation }) => conversation._id)],
      costs,
    };
  };
};
