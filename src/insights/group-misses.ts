import type { ClientSession, Connection, Model, mongo } from 'mongoose';
import { toBytes, toFloats } from '../assistants/knowledge/vectors.ts';
import { isMongoUnavailable } from '../platform/mongo/failures.ts';
import { collectionOf, inTransaction, schemaOf } from '../platform/mongo/mongo.ts';
import { serverDate, serverNow } from '../platform/process/clock.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { newId } from '../platform/process/ids.ts';
import type { Logger } from '../platform/process/logger.ts';
import { createLru } from '../platform/process/lru.ts';
import { createSlices, workFor } from '../platform/process/slices.ts';
import { mapAtMost } from '../platform/process/slots.ts';
import { type ProjectedConversation, searchModel, searchWordsOf } from './conversation-search.ts';
import {
  type Lesson,
  LESSONS_AT_ONCE,
  MAX_EXAMPLES,
  MAX_GROUPS,
  type MissAnswer,
  type Finding,
  missModel,
  type StoredMiss,
} from './misses.ts';

/** How many assistants are grouped at once. The model serves them side by side. */
const ASSISTANTS_AT_ONCE = 4;
/** Misses that have waited longer are grouped by their words, without the model, so that they never pile up. */
const LATE_MS = 60_000;
/** A hedged answer that the visitor neither accepts nor rejects is a miss after this time. */
const LEFT_ALONE_MS = 10 * 60_000;
/** How long one call of `group` may work. The next call continues. */
const WORK_MS = 8_000;
/** Of so many assistants it is remembered when their questions were last grouped. */
const SERVED_MAX = 10_000;

/** A step may have 300 KB of answers. */
const STEPS_READ_AT_ONCE = 10;

/** The lessons that one step of the projection has read of a conversation, or one hedged answer. Removed once grouped. */
type StoredPending = {
  /** The conversation id and the last `seq` of the step, so that ids sort in the order of the messages. */
  _id: string;
  assistantId: string;
  conversationId: string;
  /** It is grouped from then on. */
  at: Date;
  lessons: Lesson[];
};
type Step = { conversationId: string; assistantId: string; seq: number; lessons: Finding[] };

const idOf = (conversationId: string, seq: number): string => `${conversationId}:${String(seq).padStart(12, '0')}`;
const idOfHedge = (conversationId: string, seq: number): string => `${idOf(conversationId, seq)}:hedge`;

const isLesson = (one: Finding): one is Lesson => one.kind === 'miss' || one.kind === 'answer';

/** What is written for a step, in order: its lessons, hedged answers that begin to wait, and how others end. */
const writesOf = (
  { conversationId, assistantId, seq, lessons }: Step,
  now: Date,
): mongo.AnyBulkWriteOperation<StoredPending>[] => {
  const insert = (_id: string, at: Date, some: Lesson[]) => ({
    updateOne: {
      filter: { _id },
      update: { $setOnInsert: { assistantId, conversationId, at, lessons: some } },
      upsert: true,
    },
  });
  const learned = lessons.filter(isLesson);
  return [
    ...(learned.length > 0 ? [insert(idOf(conversationId, seq), now, learned)] : []),
    ...lessons.flatMap((one) => {
      if (isLesson(one)) return [];
      const _id = idOfHedge(conversationId, one.seq);
      if (one.kind === 'hedge') return insert(_id, new Date(one.question.at.getTime() + LEFT_ALONE_MS), [one.question]);
      if (one.kind === 'accepted') return { deleteOne: { filter: { _id } } };
      return { updateOne: { filter: { _id }, update: { $set: { at: now } } } };
    }),
  ];
};

const schema = schemaOf<StoredPending>('pendingMisses');
schema.index({ assistantId: 1, at: 1, _id: 1 });
schema.index({ conversationId: 1 });

/**
 * Questions that wait to be grouped. The projection stores them with its own writes. They are grouped apart from it,
 * because the model may be slow. Each is grouped exactly once: the transaction that changes a group also removes the
 * question from here.
 */
export type PendingMisses = {
  model: Model<StoredPending>;

  /** Stores what is to be learned from some steps, in the transaction of the projection. */
  add: (steps: Step[], session: ClientSession) => Promise<void>;

  eraseConversations: (conversationIds: string[]) => Promise<void>;

  /**
   * Groups what waits, until its time is up. Assistants take turns, one step each. Those whose last turn is longest ago
   * come first, so that the next call goes on with others.
   */
  group: (groupMisses: GroupMisses, options: { draining: AbortSignal; logger: Logger }) => Promise<void>;
};

export const createPendingMisses = (connection: Connection): PendingMisses => {
  const model = connection.model<StoredPending>('PendingMisses', schema);
  const pending = collectionOf(model);
  const misses = collectionOf<StoredMiss>(missModel(connection));
  const rows = collectionOf<ProjectedConversation>(searchModel(connection));
  /** When an assistant last had its turn here. Losing an entry only changes the order. */
  const servedAt = createLru<number>({ most: SERVED_MAX });

  /** The oldest steps of an assistant whose lessons fit into one grouping, but at least one step. */
  const readOldest = async (assistantId: string): Promise<StoredPending[]> => {
    const due = { assistantId, at: { $lte: serverDate() } };
    const options = { sort: { at: 1, _id: 1 }, limit: LESSONS_AT_ONCE, batchSize: STEPS_READ_AT_ONCE } as const;
    const oldest: StoredPending[] = [];
    let lessons = 0;
    for await (const one of pending.find(due, options)) {
      lessons += one.lessons.length;
      if (oldest.length > 0 && lessons > LESSONS_AT_ONCE) break;
      oldest.push(one);
    }
    return oldest;
  };

  /** Groups some lessons of an assistant. False if there are none. */
  const groupSome = async (assistantId: string, groupMisses: GroupMisses): Promise<boolean> => {
    const steps = await readOldest(assistantId);
    const [oldest] = steps;
    if (!oldest) return false;
    const known = await rows
      .find({ _id: { $in: steps.map(({ conversationId }) => conversationId) } }, { projection: { missId: 1 } })
      .toArray();
    const missIds = new Map(known.map(({ _id, missId }) => [_id, missId ?? null]));
    const learners = steps.map(({ conversationId, lessons }) => ({
      conversationId,
      assistantId,
      lessons,
      lastMissId: missIds.get(conversationId) ?? null,
    }));
    const isLate = serverNow() - oldest.at.getTime() > LATE_MS;
    const { writes, lastMissIds } = await groupMisses(learners, { isLate });
    // If the transaction fails, a conversation may name a group that does not exist. Its lessons are grouped again.
    for (const [_id, missId] of lastMissIds) await rows.updateOne({ _id }, { $set: { missId } });
    await inTransaction(connection, async (session) => {
      const removed = await pending.deleteMany({ _id: { $in: steps.map(({ _id }) => _id) } }, { session });
      if (removed.deletedCount !== steps.length) throw new Error('another worker has grouped this, or it was erased');
      if (writes.length > 0) await misses.bulkWrite(writes, { session });
    });
    return true;
  };

  return {
    model,

    add: async (steps, session) => {
      const now = serverDate();
      const writes = steps.flatMap((step) => writesOf(step, now));
      if (writes.length > 0) await pending.bulkWrite(writes, { session });
    },

    eraseConversations: async (conversationIds) => {
      await pending.deleteMany({ conversationId: { $in: conversationIds } });
    },

    group: async (groupMisses, { draining, logger }) => {
      const until = performance.now() + WORK_MS;
      // Most wait for the visitor's next message. The first condition lets the index find the others.
      const due = { assistantId: { $gte: '' }, at: { $lte: serverDate() } };
      let waiting = (await pending.distinct('assistantId', due)).toSorted(
        (a, b) => (servedAt.get(a) ?? 0) - (servedAt.get(b) ?? 0),
      );
      while (waiting.length > 0) {
        const more = await mapAtMost(ASSISTANTS_AT_ONCE, waiting, async (assistantId) => {
          if (draining.aborted || performance.now() > until) return false;
          servedAt.set(assistantId, performance.now());
          return groupSome(assistantId, groupMisses).catch((cause: unknown) => {
            if (isMongoUnavailable(cause)) throw cause;
            logger.warn({ err: cause, assistantId }, 'questions were not grouped; they wait for the next round');
            return false;
          });
        });
        waiting = waiting.filter((_, nth) => more[nth]);
      }
    },
  };
};

/** Two questions with at least this cosine have the same meaning. */
const COSINE_MIN = 0.89;
/** Without vectors, two questions are the same if they share this part of their words. */
const WORDS_MIN = 0.6;

type Likened = { words: Set<string>; vector: Float32Array | null };

/** The cosine of two vectors of length 1. */
export const cosine = (one: Float32Array, other: Float32Array): number => {
  let sum = 0;
  for (let at = 0; at < one.length; at += 1) sum += (one[at] ?? 0) * (other[at] ?? 0);
  return sum;
};

const shared = (one: Set<string>, other: Set<string>): number => {
  const both = [...one].filter((word) => other.has(word)).length;
  return both === 0 ? 0 : both / (one.size + other.size - both);
};

/**
 * How alike two questions are, from 0 to 1, or 0 if they are different questions. Vectors of length 1 decide if both
 * questions have one.
 */
const likenessOf = (one: Likened, other: Likened): number => {
  const words = shared(one.words, other.words);
  if (words === 1) return 1;
  if (one.vector?.length !== undefined && one.vector.length === other.vector?.length) {
    const likeness = cosine(one.vector, other.vector);
    return likeness >= COSINE_MIN ? likeness : 0;
  }
  return words >= WORDS_MIN ? words : 0;
};

/** Makes vectors of length 1. Null if no model is available; the questions are then grouped by their words. */
type Embed = (texts: string[], assistantId: string) => Promise<Float32Array[] | null>;
export type Embedding = { embed: Embed; model: () => string | null };

/**
 * A miss this soon after its group was taught does not open the group again: the teaching may not have had effect yet.
 */
const TAUGHT_GRACE_MS = 60_000;
/** How many groups get a vector at once if they have none, or one by another model. */
const EMBEDDED_AT_ONCE = 16;
const MAX_WORDS = 100;

/** How long the model may take for the questions of one step. */
const EMBEDDED_WITHIN_MS = 30_000;

type EmbedOwn = (texts: string[]) => ReturnType<Embed>;
type Write = mongo.AnyBulkWriteOperation<StoredMiss>;
type Group = Omit<StoredMiss, 'vector' | 'words' | 'examples'> & Likened;

/** The lessons of one conversation. `lastMissId` is the group of its last miss, from an earlier step. */
type Learner = { conversationId: string; assistantId: string; lessons: Lesson[]; lastMissId: string | null };
type Grouped = { writes: Write[]; lastMissIds: Map<string, string> };

const wordsOf = (question: string): string[] => [...searchWordsOf(question)].slice(0, MAX_WORDS);

/** Finds the group of each miss, and plans what is written. Nothing is written here. */
type GroupMisses = (learners: Learner[], options?: { isLate?: boolean | undefined }) => Promise<Grouped>;

export const createGroupMisses = (connection: Connection, { embed, model }: Embedding): GroupMisses => {
  const misses = collectionOf<StoredMiss>(missModel(connection));

  const load = async (assistantId: string): Promise<Group[]> => {
    const rows = await misses.find({ assistantId }, { projection: { examples: 0 }, promoteBuffers: true }).toArray();
    const current = model();
    return rows.map(({ vector, words, ...row }) => ({
      ...row,
      words: new Set(words),
      vector: vector && row.model === current ? toFloats(vector) : null,
    }));
  };

  /** Gives vectors to groups that were made without the current model. */
  const completeVectors = async (groups: Group[], embedOwn: EmbedOwn): Promise<Write[]> => {
    const without = groups.filter(({ vector }) => vector === null).slice(0, EMBEDDED_AT_ONCE);
    const current = model();
    const vectors =
      without.length > 0 && current !== null ? await embedOwn(without.map(({ question }) => question)) : null;
    return (vectors ?? []).flatMap((vector, nth): Write[] => {
      const group = without[nth];
      if (!group) return [];
      Object.assign(group, { vector, model: current });
      const { _id, question } = group;
      return [
        { updateOne: { filter: { _id, question }, update: { $set: { vector: toBytes(vector), model: current } } } },
      ];
    });
  };

  const groupOne = async (
    assistantId: string,
    { learners, lastMissIds, isLate }: { learners: Learner[]; lastMissIds: Map<string, string>; isLate: boolean },
  ) => {
    /** Without vectors in time, the questions are grouped by their words. */
    const embedOwn: EmbedOwn = async (texts) =>
      isLate ? null : withDeadline(embed(texts, assistantId), EMBEDDED_WITHIN_MS).catch(() => null);
    const groups = await load(assistantId);
    const questions = learners.flatMap(({ lessons }) =>
      lessons.flatMap((one) => (one.kind === 'miss' ? [one.question] : [])),
    );
    const writes = questions.length > 0 ? await completeVectors(groups, embedOwn) : [];
    const madeBy = model();
    const vectors = questions.length > 0 ? await embedOwn(questions) : null;
    let nth = 0;

    const dropRarest = (): void => {
      const [rarest] = groups.toSorted((a, b) => a.count - b.count || a.lastAt.getTime() - b.lastAt.getTime());
      if (!rarest) return;
      groups.splice(groups.indexOf(rarest), 1);
      writes.push({ deleteOne: { filter: { _id: rarest._id } } });
    };

    const addMiss = (lesson: Lesson & { kind: 'miss' }, conversationId: string): Group => {
      const { question, language, at } = lesson;
      const vector = vectors?.[nth] ?? null;
      nth += 1;
      const words = wordsOf(question);
      const likened = { words: new Set(words), vector };
      let best: { group: Group; likeness: number } | null = null;
      for (const group of groups) {
        const likeness = likenessOf(likened, group);
        if (likeness > (best?.likeness ?? 0)) best = { group, likeness };
      }
      const example = { conversationId, question, at };
      const push = { $push: { examples: { $each: [example], $slice: -MAX_EXAMPLES } } };
      if (best) {
        const { group } = best;
        const isReopened =
          group.state === 'taught' && at.getTime() > (group.taughtAt?.getTime() ?? 0) + TAUGHT_GRACE_MS;
        const counted = isReopened ? { $set: { state: 'open' as const, count: 1 } } : { $inc: { count: 1 } };
        if (isReopened) group.state = 'open';
        group.count += 1;
        writes.push({
          updateOne: { filter: { _id: group._id }, update: { ...counted, ...push, $max: { lastAt: at } } },
        });
        return group;
      }
      while (groups.length >= MAX_GROUPS) dropRarest();
      const own = {
        _id: newId(),
        assistantId,
        question,
        conversationId,
        language,
        model: vector === null ? null : madeBy,
        count: 1,
        firstAt: at,
        lastAt: at,
        answer: null,
        state: 'open' as const,
      };
      writes.push({
        insertOne: { document: { ...own, words, vector: vector && toBytes(vector), examples: [example] } },
      });
      const group: Group = { ...own, ...likened };
      groups.push(group);
      return group;
    };

    const slices = createSlices();
    for (const { conversationId, lessons, lastMissId } of learners) {
      const lastId = lastMissIds.get(conversationId) ?? lastMissId;
      let last = groups.find(({ _id }) => _id === lastId) ?? null;
      for (const lesson of lessons) {
        if (lesson.kind === 'miss') {
          await slices.next(); // each miss has a slice, because it is compared with up to 500 groups
          last = addMiss(lesson, conversationId);
          lastMissIds.set(conversationId, last._id);
        } else if (last && lesson.content.length > (last.answer?.content.length ?? 0)) {
          // The longest answer is most likely the one to the question. Others greet or ask back.
          const answer: MissAnswer = { conversationId, content: lesson.content, at: lesson.at };
          last.answer = answer;
          writes.push({ updateOne: { filter: { _id: last._id }, update: { $set: { answer } } } });
        }
      }
    }
    return writes;
  };

  return async (learners, { isLate = false } = {}) => {
    const lastMissIds = new Map<string, string>();
    const writes: Write[] = [];
    for (const [assistantId, own] of Map.groupBy(learners, (one) => one.assistantId)) {
      const grouping = () => groupOne(assistantId, { learners: own, lastMissIds, isLate });
      writes.push(...(await workFor(assistantId, grouping)));
    }
    return { writes, lastMissIds };
  };
};
