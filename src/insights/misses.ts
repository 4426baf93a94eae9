import type { Connection, Model } from 'mongoose';
import * as z from 'zod';
import type { Entry, Message } from '../conversations/conversation.ts';
import { serverDate } from '../platform/process/clock.ts';
import { notFound } from '../platform/process/errors.ts';
import { collectionOf, schemaOf } from '../platform/mongo/mongo.ts';
import { readReply } from './figures.ts';
import { askedIn } from '../conversations/state.ts';
import { searchWordsOf } from './conversation-search.ts';

/**
 * At most this many groups of an assistant are kept. A new group replaces the rarest. Of equally rare ones, it replaces
 * the one whose last miss is the oldest.
 */
export const MAX_GROUPS = 500;
export const MAX_EXAMPLES = 5;

type MissExample = { conversationId: string; question: string; at: Date };
export type MissAnswer = { conversationId: string; content: string; at: Date };

/** A group of questions with the same meaning that the assistant could not answer. */
export type StoredMiss = {
  _id: string;
  assistantId: string;
  /** The question that stands for the group, and the conversation that it comes from. */
  question: string;
  conversationId: string;
  language: string | null;
  /** The folded words of the question, for grouping without a model. */
  words: string[];
  /** The question's vector as little-endian float32, and its model. Null until a model is available. */
  vector: Buffer | null;
  model: string | null;
  count: number;
  firstAt: Date;
  lastAt: Date;
  /** The latest questions of the group. */
  examples: MissExample[];
  /** What an operator wrote after one of the questions. */
  answer: MissAnswer | null;
  /**
   * A dismissed group is kept, so that its questions make no new group. A taught group opens again with a later miss.
   */
  state: 'open' | 'dismissed' | 'taught';
  taughtAt?: Date;
  entryId?: string;
};

const schema = schemaOf<StoredMiss>('misses');
schema.index({ assistantId: 1 });
// The conversations whose text a group holds, for their erasure.
schema.index({ conversationId: 1 });
schema.index({ 'examples.conversationId': 1 });
schema.index({ 'answer.conversationId': 1 });

export const missModel = (connection: Connection) => connection.model<StoredMiss>('Miss', schema);

const LISTED_MAX = 200;
const READ_AT_ONCE = 20;
const LOOKS_MAX = 10;

/** Lists groups of misses, dismisses them and marks them as taught. The projection makes them. */
export type MissStore = {
  model: Model<StoredMiss>;

  /** The open groups, the most frequent first. */
  list: (assistantId: string) => Promise<StoredMiss[]>;

  exists: (assistantId: string, missId: string) => Promise<boolean>;

  /** The conversations that a group's question and answer come from. Null if there is no such group. */
  findConversations: (assistantId: string, missId: string) => Promise<string[] | null>;

  dismiss: (assistantId: string, missId: string) => Promise<void>;

  /** Marks a group as taught by a knowledge entry. False if the group was already taught. */
  markTaught: (assistantId: string, missId: string, entryId: string) => Promise<boolean>;

  /** Reads the text of a conversation that groups hold, in pages: exactly what an erasure removes. */
  readTextsOf: (
    conversationId: string,
  ) => AsyncIterable<
    { missId: string; question: string | null; examples: { question: string; at: Date }[]; answer: string | null }[]
  >;

  /** Removes all text of these conversations. A group that has no other text is deleted. */
  eraseConversations: (conversationIds: string[]) => Promise<void>;
};

export const createMissStore = (connection: Connection): MissStore => {
  const model = missModel(connection);
  const misses = collectionOf<StoredMiss>(model);

  /**
   * Gives a group another question after the conversation of its question was erased. A group without examples is
   * deleted.
   */
  const replaceQuestion = async ({ _id, conversationId, examples }: StoredMiss): Promise<void> => {
    const [example] = examples;
    const same = { _id, conversationId };
    if (!example) {
      await misses.deleteOne({ ...same, examples: [] });
      return;
    }
    const { question } = example;
    await misses.updateOne(
      { ...same, 'examples.conversationId': example.conversationId },
      {
        $set: {
          question,
          conversationId: example.conversationId,
          words: [...searchWordsOf(question)],
          vector: null,
          model: null,
        },
      },
    );
  };

  return {
    model,

    list: (assistantId) =>
      misses
        .find({ assistantId, state: 'open' }, { projection: { vector: 0, words: 0 } })
        .sort({ count: -1, lastAt: -1, _id: 1 })
        .limit(LISTED_MAX)
        .toArray(),

    exists: async (assistantId, missId) =>
      (await misses.findOne({ _id: missId, assistantId }, { projection: { _id: 1 } })) !== null,

    findConversations: async (assistantId, missId) => {
      const projection = { conversationId: 1, 'answer.conversationId': 1 };
      const found = await misses.findOne({ _id: missId, assistantId }, { projection });
      return found && [...new Set([found.conversationId, ...(found.answer ? [found.answer.conversationId] : [])])];
    },

    dismiss: async (assistantId, missId) => {
      const changed = await misses.updateOne({ _id: missId, assistantId }, { $set: { state: 'dismissed' } });
      if (changed.matchedCount === 0) throw notFound();
    },

    markTaught: async (assistantId, missId, entryId) => {
      const changed = await misses.updateOne(
        { _id: missId, assistantId, state: { $ne: 'taught' } },
        { $set: { state: 'taught', taughtAt: serverDate(), entryId } },
      );
      return changed.matchedCount === 1;
    },

    readTextsOf: async function* (conversationId) {
      const holds = [
        { conversationId },
        { 'examples.conversationId': conversationId },
        { 'answer.conversationId': conversationId },
      ];
      const projection = { question: 1, conversationId: 1, examples: 1, answer: 1 };
      for await (const group of misses.find({ $or: holds }, { projection, batchSize: READ_AT_ONCE })) {
        const { _id: missId, question, examples, answer } = group;
        const own = examples.filter((one) => one.conversationId === conversationId);
        yield [
          {
            missId,
            question: group.conversationId === conversationId ? question : null,
            examples: own.map(({ question: asked, at }) => ({ question: asked, at })),
            answer: answer?.conversationId === conversationId ? answer.content : null,
          },
        ];
      }
    },

    eraseConversations: async (conversationIds) => {
      const conversationId = { $in: conversationIds };
      await misses.updateMany(
        { 'examples.conversationId': conversationId },
        { $pull: { examples: { conversationId } } },
      );
      await misses.updateMany({ 'answer.conversationId': conversationId }, { $set: { answer: null } });
      // A group may change meanwhile, so the groups are searched again.
      for (let looks = 0; looks < LOOKS_MAX; looks += 1) {
        const rows = await misses.find({ conversationId }, { projection: { vector: 0 } }).toArray();
        if (rows.length === 0) return;
        for (const row of rows) await replaceQuestion(row);
      }
    },
  };
};

const QUESTION_MAX = 500;
const ANSWER_MAX = 4_000;
/** At most about this many lessons are learned in one step, because the worker that learns them also writes replies. */
export const LESSONS_AT_ONCE = 50;
/** At most about this many characters of a conversation are read for words in one step. */
const CHARS_AT_ONCE = 100_000;
/** An offer is a miss if its best confidence was below this share of the threshold. */
const LONG_SHOT_SHARE = 0.5;

type MissLesson = { kind: 'miss'; question: string; language: string | null; at: Date };
/** What is learned of a group: a question without an answer, or what an operator wrote after it. */
export type Lesson = MissLesson | { kind: 'answer'; content: string; at: Date };

/**
 * What the projection reads in some messages. The question of a hedged answer (`seq`) waits: it is no miss if the visitor
 * accepts the answer, a miss at once if the visitor rejects it, and later one if the visitor leaves it alone.
 */
export type Finding =
  | Lesson
  | { kind: 'hedge'; seq: number; question: MissLesson }
  | { kind: 'accepted' | 'rejected'; seq: number };

/** The part of a reply's `why` that lessons need. */
const Why = z.object({
  kind: z.string(),
  by: z.string().optional(),
  rejected: z.boolean().optional(),
  /** The reply is taken from a passage. */
  given: z.unknown().optional(),
  threshold: z.number(),
  hits: z.array(z.object({ entryId: z.string(), score: z.number() })),
  passages: z.array(z.object({ score: z.number() })).default([]),
});
type Why = z.infer<typeof Why>;

const isLongShot = (why: Why | undefined): boolean => {
  const scores = why ? [...why.hits, ...why.passages].map(({ score }) => score) : [];
  return why !== undefined && scores.length > 0 && Math.max(...scores) < why.threshold * LONG_SHOT_SHARE;
};

const isMiss = (reply: Message, why: Why | undefined): boolean => {
  const { outcome, engineFailed } = readReply(reply);
  return (outcome === 'notAnswered' && !engineFailed) || (outcome === 'offered' && isLongShot(why));
};

const cut = (text: string, length: number): string => text.trim().slice(0, length).toWellFormed();

/** A hedged answer: its number, its entry, and the other entries that the visitor could choose. */
type Hedge = { seq: number; given: string | null; others: string[] };

const ACCEPTING = new Set(['yes', 'thanks', 'goodbye']);

/**
 * Rejected: the visitor chose another entry than the hedged answer, said that it was not meant, or asked for a person.
 * Null if what the visitor said next tells nothing.
 */
const verdictOn = ({ given, others }: Hedge, { kind, rejected, by, hits: [first] }: Why) => {
  const chosen = by === 'wording' ? (first?.entryId ?? null) : null;
  if (rejected === true || kind === 'human' || (chosen !== null && others.includes(chosen))) return 'rejected';
  return ACCEPTING.has(kind) || (chosen !== null && chosen === given) ? 'accepted' : null;
};

const hedgeOf = (why: Why | undefined, seq: number): Hedge | null => {
  if (why?.kind !== 'hedge') return null;
  const entryIds = why.hits.map(({ entryId }) => entryId);
  const given = why.given === undefined ? (entryIds.shift() ?? null) : null;
  return { seq, given, others: entryIds };
};

/** What some entries teach, in order. `earlier` has the entries before them, where a hedged answer may wait. */
export const readLessons = (entries: Entry[], earlier: Entry[] = []): Finding[] => {
  const lessons: Finding[] = [];
  let hedge: Hedge | null = null;
  const all = [...earlier, ...entries];
  for (const { seq, messages } of all.slice(Math.max(0, earlier.length - 1))) {
    const isNew = seq >= (entries[0]?.seq ?? 0);
    for (const message of messages) {
      const { role, turnId, createdAt: at } = message;
      if (role === 'operator' && isNew) lessons.push({ kind: 'answer', content: cut(message.content, ANSWER_MAX), at });
      const visitor = messages.find((one) => one.role === 'user' && one.turnId === turnId);
      if (role !== 'assistant' || turnId === null || !visitor) continue;
      const asked = { content: askedIn(all, visitor), language: visitor.language };
      const why = Why.safeParse(message.why).data;
      const verdict = hedge && why ? verdictOn(hedge, why) : null;
      if (isNew && hedge && verdict) lessons.push({ kind: verdict, seq: hedge.seq });
      hedge = hedgeOf(why, seq);
      if (!isNew || !/\p{L}/u.test(asked.content)) continue;
      const question = cut(asked.content, QUESTION_MAX);
      const missed: MissLesson = { kind: 'miss', question, language: asked.language, at: visitor.createdAt };
      if (hedge) lessons.push({ kind: 'hedge', seq, question: missed });
      else if (isMiss(message, why) && !why?.rejected) lessons.push(missed);
    }
  }
  return lessons;
};

/**
 * Takes as many entries from the beginning as one step can work on, at least one. `upTo` is the number before the first
 * entry that is left out.
 */
export const fitStep = ({ entries, upTo }: { entries: Entry[]; upTo: number }): { entries: Entry[]; upTo: number } => {
  let [lessons, chars] = [0, 0];
  const surplus = entries.findIndex((entry, nth) => {
    lessons += readLessons([entry]).length;
    chars += entry.messages.reduce((sum, { content }) => sum + content.length, 0);
    return nth > 0 && (lessons > LESSONS_AT_ONCE || chars > CHARS_AT_ONCE);
  });
  const next = entries[surplus];
  return next ? { entries: entries.slice(0, surplus), upTo: next.seq - 1 } : { entries, upTo };
};
