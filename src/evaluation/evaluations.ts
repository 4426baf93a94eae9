import type { Connection, mongo } from 'mongoose';
import type { ReplySource } from '../assistants/suggested-action.ts';
import type { ReplyOutcome } from '../insights/figures.ts';
import { DELETED_WITHIN_MS, deleteInBatches, inChunks, type Lease, leaseIn } from '../platform/mongo/batches.ts';
import { collectionOf, type Indexed, inTransaction, inTurn, schemaOf } from '../platform/mongo/mongo.ts';
import { serverDate, serverNow } from '../platform/process/clock.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { invalid, notFound } from '../platform/process/errors.ts';
import { newId } from '../platform/process/ids.ts';
import { type Difference, doubtOf, type Expected, type Verdict } from './question.ts';

/** How many evaluations of an assistant may wait or run, and how many are kept. */
const UNFINISHED_MAX = 5;
const KEPT_MAX = 30;
/** A question that waits for a large index may take longer, so a timer renews the lease. */
const LEASE_MS = 30_000;
const INSERTED_AT_ONCE = 50;
const READ_AT_ONCE = 50;
/** The value of `doubt` while a question is not answered. */
const UNANSWERED = 99;
/** The holder of the results that erasures delete. */
const ERASURES = '';
const lease = leaseIn('lease', LEASE_MS);

type EvaluationState = 'waiting' | 'running' | 'done' | 'stopped' | 'failed';
export type EvaluatedSet = { setId: string; name: string; version: number };
export type Counts = Partial<Record<Verdict, number>>;
/** The tokens that an evaluation may use of its provider, and those that are used or reserved. */
type TokenBudget = { tokens: number; used: number; isUsedUp: boolean };

export type Evaluation = {
  evaluationId: string;
  assistantId: string;
  state: EvaluationState;
  /** The set whose questions are answered. Null: questions that visitors asked. */
  set: EvaluatedSet | null;
  /** The revision of the draft that is compared with what is live. Null: only what is live answers. */
  draftRevision: number | null;
  /** Null: no provider is asked. */
  provider: TokenBudget | null;
  /** How the replies of the draft were judged by the expected answers. */
  judged: Counts;
  /** The versions that have answered. Empty without drafts. */
  versions: number[];
  total: number;
  done: number;
  counts: Counts;
  createdAt: Date;
  startedAt: Date | null;
  endedAt: Date | null;
};
type StoredEvaluation = Omit<Evaluation, 'evaluationId' | 'draftRevision' | 'provider' | 'judged' | 'versions'> & {
  _id: string;
  draftRevision?: number;
  provider?: TokenBudget;
  judged?: Counts;
  versions?: number[];
  /** The number of the next question. */
  next: number;
  /** Its place among the unfinished evaluations. Absent once it has ended. */
  dueAt?: Date;
  lease?: Lease;
  /** How often it was taken since its last answer, without being given back. */
  tries?: number;
};

/** A question to answer. `before`: what the visitor got. */
export type Asked = {
  question: string;
  language: string | null;
  expected: Expected | null;
  caseId: string | null;
  conversationId: string | null;
  conversationIds: string[];
  before: { kind: ReplyOutcome; reply: string } | null;
};
/** A reply, and how it was judged by the expected answer. */
export type GivenReply = {
  kind: ReplyOutcome;
  confidence: number;
  reply: string;
  sources: ReplySource[];
  why: Record<string, unknown>;
};
/** What the assistant would answer, and how that was judged. `live`: what the reply of a draft is compared with. */
export type Answered = GivenReply & {
  verdict: Verdict;
  difference?: Difference | null;
  judged?: Verdict | null;
  live?: GivenReply & { judged: Verdict | null };
};
export type EvaluationResult = Asked & Answered & { resultId: string };
type StoredResult = Asked &
  Partial<Answered> & { _id: string; evaluationId: string; assistantId: string; doubt: number };

/** `tries`: above 1 if workers that held it before were killed, and nothing was answered in between. */
export type HeldEvaluation = Evaluation & { next: number; token: string; tries: number };
type NumberedQuestion = Asked & { nth: number };
type NotTaken = { noneAsking: boolean; noneWaiting: boolean };
/**
 * Evaluations not to take, because others are being worked on: those of these assistants, those that ask a provider,
 * those that ask none, and those of drafts. `slow`: the same among those of these assistants, where a draft that asks a
 * provider and one that asks none are counted apart.
 */
export type Besides = NotTaken & {
  assistantIds: string[];
  noDrafts: boolean;
  slow: NotTaken & { assistantIds: string[]; drafts: NotTaken };
};

const evaluationSchema = schemaOf<StoredEvaluation>('evaluations');
evaluationSchema.index({ assistantId: 1, createdAt: -1 });
const DUE = { dueAt: 1, assistantId: 1 } as const;
evaluationSchema.index(DUE, { partialFilterExpression: { dueAt: { $exists: true } } });
const UNFINISHED = { assistantId: 1, dueAt: 1 } as const;
evaluationSchema.index(UNFINISHED, { partialFilterExpression: { dueAt: { $exists: true } } });

const resultSchema = schemaOf<StoredResult>('evaluationResults');
resultSchema.index({ evaluationId: 1, doubt: 1, _id: 1 });
resultSchema.index(
  { conversationIds: 1 },
  { partialFilterExpression: { 'conversationIds.0': { $exists: true } }, name: 'origins' },
);

const toEvaluation = ({
  _id,
  next: _next,
  dueAt: _dueAt,
  lease: _lease,
  tries: _tries,
  ...stored
}: StoredEvaluation): Evaluation => ({
  evaluationId: _id,
  draftRevision: null,
  provider: null,
  judged: {},
  versions: [],
  ...stored,
});
const OF_DRAFT = { draftRevision: { $exists: true } };
const kindsOf = ({ noneAsking, noneWaiting }: NotTaken): mongo.Filter<StoredEvaluation>[] => [
  ...(noneAsking ? [{ provider: { $exists: true } }] : []),
  ...(noneWaiting ? [{ provider: { $exists: false } }] : []),
];
const fittingBeside = ({ slow, ...besides }: Besides): mongo.Filter<StoredEvaluation> => {
  const drafts = kindsOf(slow.drafts).map((kind) => ({ ...kind, ...OF_DRAFT }));
  const ofSlow = [...kindsOf(slow), ...drafts].map((kind) => ({ ...kind, assistantId: { $in: slow.assistantIds } }));
  const none = [...kindsOf(besides), ...(besides.noDrafts ? [OF_DRAFT] : []), ...ofSlow];
  return { assistantId: { $nin: besides.assistantIds }, ...(none.length > 0 && { $nor: none }) };
};
/** Ids sort in the order of the questions. */
const resultIdOf = (evaluationId: string, nth: number): string => `${evaluationId}:${String(nth).padStart(6, '0')}`;
const nthIn = (resultId: string): number => Number(resultId.slice(resultId.indexOf(':') + 1));

/** A result without `doubt`, for a list. */
const toResult = ({
  _id,
  evaluationId: _evaluation,
  assistantId: _assistant,
  doubt: _doubt,
  ...stored
}: StoredResult) => ({ resultId: _id, ...stored }) as EvaluationResult; // those of a list are answered

/** What these answers add to the counts of an evaluation, by path. */
const countsOf = (answers: { answer: Answered }[]): Record<string, number> => {
  const counts: Record<string, number> = { done: answers.length };
  for (const { answer } of answers) {
    const judged = answer.judged ? [`judged.${answer.judged}`] : [];
    for (const name of [`counts.${answer.verdict}`, ...judged]) counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
};

/** The versions that gave these answers. A draft is none. */
const versionsOf = (answers: { answer: Answered }[]): number[] =>
  answers.flatMap(({ answer: { why } }) => (typeof why['version'] === 'number' ? [why['version']] : []));

type ResultPosition = { doubt: number; id: string };
type Ref = { assistantId: string; evaluationId: string };

export type Evaluations = {
  models: Indexed[];

  /**
   * Throws if the assistant already has the maximum number of unfinished evaluations. Call it before the questions are
   * read.
   */
  requireRoom: (assistantId: string) => Promise<void>;

  /** Begins an evaluation: all its questions are stored with it, or none. */
  create: (one: {
    assistantId: string;
    set: EvaluatedSet | null;
    questions: Asked[];
    draftRevision?: number | null;
    /** The tokens of the provider that it may use. Null: the provider is not asked. */
    tokens?: number | null;
  }) => Promise<Evaluation>;

  /** The newest ones first. */
  list: (assistantId: string) => Promise<Evaluation[]>;
  get: (ref: Ref) => Promise<Evaluation>;
  getResult: (assistantId: string, resultId: string) => Promise<EvaluationResult>;

  /** Lists answered questions. Those that a person should look at come first. */
  listResults: (
    ref: Ref,
    options: { verdict: Verdict | null; after: ResultPosition | null; limit: number },
  ) => Promise<{ results: EvaluationResult[]; next: ResultPosition | null }>;

  /** Ends the evaluation. Its answers are kept. */
  stop: (ref: Ref) => Promise<Evaluation>;

  /** Takes the evaluation that has waited longest and that no worker holds. Null if there is none. */
  acquire: (token: string, besides?: Besides) => Promise<HeldEvaluation | null>;

  /** Renews the lease. False if another worker has it or the evaluation has ended. */
  renew: (held: HeldEvaluation) => Promise<boolean>;

  /** The next questions, in order. An empty list: all are answered. */
  readNext: (held: HeldEvaluation, limit: number) => Promise<NumberedQuestion[]>;

  /**
   * Stores answers and renews the lease. False, and nothing is stored, if another worker has the lease or the
   * evaluation was stopped.
   */
  record: (held: HeldEvaluation, answers: { nth: number; answer: Answered }[]) => Promise<boolean>;

  /**
   * Reserves the maximum that a provider call can cost, and renews the lease. Null if this exceeds the evaluation's
   * tokens, or the lease is lost. Tokens that a killed worker has reserved count as used.
   */
  reserveTokens: (held: HeldEvaluation, tokens: number) => Promise<{ settle: (cost: number) => void } | null>;

  /**
   * Ends an evaluation: all its questions are answered, its assistant is gone, its draft has changed, its tokens are
   * used up, or it ends its workers.
   */
  complete: (
    held: HeldEvaluation,
    state: 'done' | 'failed' | 'stopped',
    options?: { isUsedUp?: boolean },
  ) => Promise<void>;

  /** The newest comparison of this revision of a draft that is `done`. One with a question set is preferred. */
  findComparison: (assistantId: string, draftRevision: number) => Promise<Evaluation | null>;

  /**
   * Gives the evaluation back unfinished. All evaluations of its assistant then wait behind those of other assistants.
   */
  release: (held: HeldEvaluation) => Promise<void>;

  eraseConversations: (conversationIds: string[], until?: AbortSignal) => Promise<void>;

  /** Reads what is stored of a conversation, in pages: exactly what an erasure removes. */
  readTextsOf: (
    conversationId: string,
  ) => AsyncIterable<{ evaluationId: string; question: string; reply: string | null }[]>;
};

/** Evaluations wait in MongoDB and belong to one worker at a time, under a lease (docs/design.md, Evaluation). */
export const createEvaluations = (connection: Connection): Evaluations => {
  const models = {
    evaluations: connection.model<StoredEvaluation>('Evaluation', evaluationSchema),
    results: connection.model<StoredResult>('EvaluationResult', resultSchema),
  };
  const evaluations = collectionOf<StoredEvaluation>(models.evaluations);
  const results = collectionOf<StoredResult>(models.results);

  const heldBy = ({ evaluationId, token }: HeldEvaluation): mongo.Filter<StoredEvaluation> => ({
    _id: evaluationId,
    ...lease.heldBy(token),
  });

  /** Throws if more than `most` are unfinished. */
  const requireAtMost = async (most: number, assistantId: string): Promise<void> => {
    const options = { hint: UNFINISHED, limit: most + 1 };
    const unfinished = await evaluations.countDocuments({ assistantId, dueAt: { $exists: true } }, options);
    if (unfinished > most)
      throw invalid('setId', 'too_many', `at most ${UNFINISHED_MAX} evaluations of an assistant may be unfinished`);
  };
  const requireRoom = (assistantId: string): Promise<void> => requireAtMost(UNFINISHED_MAX - 1, assistantId);

  const remove = async ({ assistantId, evaluationId }: Ref): Promise<void> => {
    await deleteInBatches({ collection: results, filter: { evaluationId }, holder: assistantId });
    await evaluations.deleteOne({ _id: evaluationId });
  };

  /** What this leaves, or a kill, is removed after the next evaluation has begun. */
  const removeOld = async (assistantId: string): Promise<void> => {
    const old = await evaluations
      .find({ assistantId }, { projection: { _id: 1 } })
      .sort({ createdAt: -1 })
      .skip(KEPT_MAX)
      .limit(KEPT_MAX)
      .toArray();
    for (const { _id } of old) await remove({ assistantId, evaluationId: _id });
  };

  /** Ends an evaluation that is not over. Its worker loses it. */
  const end = async ({ assistantId, evaluationId }: Ref): Promise<void> => {
    await evaluations.updateOne(
      { _id: evaluationId, assistantId, dueAt: { $exists: true } },
      { $set: { state: 'stopped', endedAt: serverDate() }, $unset: { dueAt: '', tries: '', ...lease.ended } },
    );
  };

  const get = async ({ assistantId, evaluationId }: Ref): Promise<Evaluation> => {
    const stored = await evaluations.findOne({ _id: evaluationId, assistantId });
    if (!stored) throw notFound();
    return toEvaluation(stored);
  };

  return {
    models: [models.evaluations, models.results],
    get,
    requireRoom,

    create: async ({ assistantId, set, questions, draftRevision = null, tokens = null }) => {
      await requireRoom(assistantId);
      const now = serverDate();
      const evaluationId = newId();
      const stored: StoredEvaluation = {
        _id: evaluationId,
        assistantId,
        state: 'waiting',
        set,
        ...(draftRevision !== null && { draftRevision }),
        ...(tokens !== null && { provider: { tokens, used: 0, isUsedUp: false } }),
        total: questions.length,
        done: 0,
        counts: {},
        createdAt: now,
        startedAt: null,
        endedAt: null,
        next: 0,
        dueAt: now,
      };
      const rows = questions.map((one, nth) => {
        return { _id: resultIdOf(evaluationId, nth), evaluationId, assistantId, doubt: UNANSWERED, ...one };
      });
      await inTransaction(connection, async (session) => {
        for (const some of inChunks(rows, INSERTED_AT_ONCE)) await results.insertMany(some, { session });
        await evaluations.insertOne(stored, { session });
      });
      // Other requests may have begun evaluations at the same time.
      await requireAtMost(UNFINISHED_MAX, assistantId).catch(async (cause: unknown) => {
        // Its questions are deleted in turns, so first no worker may take it.
        await end({ assistantId, evaluationId });
        await withDeadline(remove({ assistantId, evaluationId }), DELETED_WITHIN_MS).catch(() => undefined);
        throw cause;
      });
      await withDeadline(removeOld(assistantId), DELETED_WITHIN_MS).catch(() => undefined);
      return toEvaluation(stored);
    },

    list: async (assistantId) => {
      const stored = await evaluations.find({ assistantId }).sort({ createdAt: -1 }).limit(KEPT_MAX).toArray();
      return stored.map(toEvaluation);
    },

    getResult: async (assistantId, resultId) => {
      const stored = await results.findOne({ _id: resultId, assistantId });
      if (!stored) throw notFound();
      return toResult(stored);
    },

    listResults: async ({ evaluationId }, { verdict, after, limit }) => {
      const later = after && {
        $or: [{ doubt: { $gt: after.doubt } }, { doubt: after.doubt, _id: { $gt: after.id } }],
      };
      const doubt = { $gte: after?.doubt ?? 0, $lt: UNANSWERED };
      const found = results
        .find({ evaluationId, doubt, ...(verdict && { verdict }), ...later })
        .sort({ doubt: 1, _id: 1 })
        .limit(limit + 1)
        .batchSize(READ_AT_ONCE);
      const read: StoredResult[] = [];
      for await (const one of found) read.push(one);
      const shown = read.slice(0, limit);
      const last = shown.at(-1);
      return {
        results: shown.map(toResult),
        next: read.length > limit && last ? { doubt: last.doubt, id: last._id } : null,
      };
    },

    stop: async (ref) => {
      await end(ref);
      return get(ref);
    },

    acquire: async (token, besides) => {
      const started = {
        lease: lease.renewed(token),
        state: 'running',
        startedAt: { $ifNull: ['$startedAt', '$$NOW'] },
        tries: { $add: [{ $ifNull: ['$tries', 0] }, 1] },
      };
      const taken = await evaluations.findOneAndUpdate(
        { dueAt: { $exists: true }, ...(besides && fittingBeside(besides)), ...lease.free },
        [{ $set: started }],
        { sort: DUE, hint: DUE, returnDocument: 'after' },
      );
      return taken && { ...toEvaluation(taken), next: taken.next, token, tries: taken.tries ?? 1 };
    },

    renew: async (held) => {
      const renewed = [{ $set: { lease: lease.renewed(held.token) } }];
      return (await evaluations.updateOne(heldBy(held), renewed)).matchedCount === 1;
    },

    readNext: async ({ evaluationId, next }, limit) => {
      const _id = { $gte: resultIdOf(evaluationId, next), $lt: `${evaluationId};` };
      const rows = await results.find({ _id }).sort({ _id: 1 }).limit(limit).toArray();
      return rows.map(({ _id: id, evaluationId: _e, assistantId: _a, doubt: _d, ...asked }) => ({
        nth: nthIn(id),
        ...asked,
      }));
    },

    record: async (held, answers) => {
      const last = answers.at(-1);
      if (!last) return true;
      const counts = countsOf(answers);
      const next = last.nth + 1;
      let isStored = false;
      // The timer may renew the lease at the same time.
      await inTurn(connection, async (session) => {
        const until = new Date(serverNow() + LEASE_MS);
        const renewed = await evaluations.updateOne(
          { ...heldBy(held), next: held.next },
          {
            $inc: counts,
            $set: { next, 'lease.until': until, tries: 0 } as Partial<StoredEvaluation>,
            $addToSet: { versions: { $each: versionsOf(answers) } },
          },
          { session },
        );
        isStored = renewed.matchedCount === 1;
        if (!isStored) return;
        const writes = answers.map(({ nth, answer }) => ({
          updateOne: {
            filter: { _id: resultIdOf(held.evaluationId, nth) },
            update: { $set: { ...answer, doubt: doubtOf(answer) } },
          },
        }));
        await results.bulkWrite(writes, { session });
      });
      if (isStored) held.next = next;
      return isStored;
    },

    reserveTokens: async (held, tokens) => {
      const most = held.provider?.tokens ?? 0;
      const until = new Date(serverNow() + LEASE_MS);
      const fits = { ...heldBy(held), 'provider.used': { $lte: most - tokens } } as mongo.Filter<StoredEvaluation>;
      const { matchedCount } = await evaluations.updateOne(fits, {
        $inc: { 'provider.used': tokens },
        $set: { 'lease.until': until } as Partial<StoredEvaluation>,
      });
      if (matchedCount === 0) return null;
      return {
        settle: (cost) => {
          const settled = evaluations.updateOne(
            { _id: held.evaluationId },
            { $inc: { 'provider.used': cost - tokens } },
          );
          settled.catch(() => undefined); // it counts as reserved
        },
      };
    },

    complete: async (held, state, { isUsedUp = false } = {}) => {
      const usedUp = { 'provider.isUsedUp': true } as mongo.MatchKeysAndValues<StoredEvaluation>;
      await evaluations.updateOne(heldBy(held), {
        $set: { state, endedAt: serverDate(), ...(isUsedUp && usedUp) },
        $unset: { dueAt: '', tries: '', ...lease.ended },
      });
    },

    findComparison: async (assistantId, draftRevision) => {
      const stored = await evaluations.find({ assistantId }).sort({ createdAt: -1 }).limit(KEPT_MAX).toArray();
      const ended = stored.filter((one) => one.state === 'done' && one.draftRevision === draftRevision);
      const found = ended.find(({ set }) => set !== null) ?? ended[0];
      return found ? toEvaluation(found) : null;
    },

    release: async (held) => {
      await evaluations.updateOne(heldBy(held), { $unset: { ...lease.ended, tries: '' } });
      const { assistantId } = held;
      const now = serverDate();
      const unfinished = { assistantId, dueAt: { $exists: true } };
      await evaluations.updateMany(unfinished, { $set: { dueAt: now } }, { hint: UNFINISHED });
    },

    eraseConversations: async (conversationIds, until) => {
      const filter = { 'conversationIds.0': { $exists: true }, conversationIds: { $in: conversationIds } };
      await deleteInBatches({ collection: results, filter, holder: ERASURES, ...(until && { until }) });
    },

    readTextsOf: async function* (conversationId) {
      const rows = results.find(
        { 'conversationIds.0': { $exists: true }, conversationIds: conversationId },
        { projection: { evaluationId: 1, question: 1, reply: 1 }, batchSize: READ_AT_ONCE },
      );
      for await (const { evaluationId, question, reply } of rows)
        yield [{ evaluationId, question, reply: reply ?? null }];
    },
  };
};
