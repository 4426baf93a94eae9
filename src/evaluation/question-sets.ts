import { baseLanguage } from '@parley/understanding/text';
import type { ClientSession, Connection } from 'mongoose';
import * as z from 'zod';
import { LanguageTag } from '../assistants/knowledge/entry.ts';
import type { ChangedConversations, ChangePosition } from '../conversations/changed-since.ts';
import type { Entry } from '../conversations/conversation.ts';
import { askedIn, readSystemMessage } from '../conversations/state.ts';
import { readReply } from '../insights/figures.ts';
import { createDeletionsUpTo, deleteInBatches, inChunks, insertAtMost } from '../platform/mongo/batches.ts';
import { collectionOf, type Indexed, inTurn, schemaOf } from '../platform/mongo/mongo.ts';
import { serverDate, serverNow } from '../platform/process/clock.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { invalid, notFound } from '../platform/process/errors.ts';
import { newId } from '../platform/process/ids.ts';
import type { Asked } from './evaluations.ts';
import { type CaseInput, QUESTION_MAX } from './question.ts';

/** How many question sets an assistant may have, and how many questions a set may have. */
const SETS_MAX = 20;
export const CASES_MAX = 1_000;
/** The maximum size of a set's questions in MongoDB, in bytes. */
const CASES_MAX_BYTES = 2 * 1024 * 1024;
const READ_AT_ONCE = 50;
const INSERTED_AT_ONCE = 100;
/** How many versions of a set can be read. */
const VERSIONS_KEPT = 20;
/** `until` of a case that is in the present version. */
const LIVE = Number.MAX_SAFE_INTEGER;

/** A removed set belongs to no assistant, so nothing finds it but `purge`. All its versions may have 40 MB. */
const NOBODY = '';
/** The longest time that the removal of a set waits until its questions are deleted. */
const PURGED_WITHIN_MS = 1_000;
/** After this time, another process repeats a purge that has not ended. */
const PURGED_AGAIN_AFTER_MS = 5 * 60_000;

/** A named list of questions with expected answers. `version` rises with each change of its questions. */
export type QuestionSet = {
  setId: string;
  assistantId: string;
  name: string;
  version: number;
  createdAt: Date;
  changedAt: Date;
};
type StoredSet = Omit<QuestionSet, 'setId'> & { _id: string };

/** `conversationIds`: where its question and answer come from. The erasure of one of them removes the case. */
export type QuestionCase = CaseInput & { caseId: string; conversationIds: string[] };
/** A case is in the versions of its set with `since ≤ version < until`, and is never changed. */
type StoredCase = QuestionCase & {
  _id: string;
  setId: string;
  assistantId: string;
  since: number;
  until: number;
  place: number;
};

const setSchema = schemaOf<StoredSet>('questionSets');
setSchema.index({ assistantId: 1, name: 1 });

const caseSchema = schemaOf<StoredCase>('questionCases');
caseSchema.index({ setId: 1, until: 1, place: 1 });
caseSchema.index(
  { conversationIds: 1 },
  { partialFilterExpression: { 'conversationIds.0': { $exists: true } }, name: 'origins' },
);

const toSet = ({ _id, ...stored }: StoredSet): QuestionSet => ({ setId: _id, ...stored });
const toCase = ({ caseId, question, language, expected, conversationIds }: StoredCase): QuestionCase => ({
  caseId,
  question,
  language,
  expected,
  conversationIds,
});

type NewCase = CaseInput & { conversationIds?: string[] };
type SetRef = { assistantId: string; setId: string };

export type QuestionSets = {
  models: Indexed[];
  list: (assistantId: string) => Promise<(QuestionSet & { questions: number })[]>;
  get: (ref: SetRef) => Promise<QuestionSet>;
  create: (assistantId: string, name: string) => Promise<QuestionSet>;
  rename: (ref: SetRef, name: string) => Promise<QuestionSet>;

  /** Nobody finds the set from then on. Many questions are deleted afterwards; `purge` finishes what a kill ends. */
  remove: (ref: SetRef) => Promise<void>;

  /** Deletes what removals have left undone, until a signal. */
  purge: (until: AbortSignal) => Promise<void>;

  /** Reads the questions of the present version or of one of the last 20 in their order, in pages. */
  readCases: (set: Pick<QuestionSet, 'setId' | 'version'>, version?: number) => AsyncIterable<QuestionCase[]>;

  addCases: (ref: SetRef, inputs: NewCase[], options?: { replace?: boolean }) => Promise<QuestionCase[]>;
  changeCase: (ref: SetRef & { caseId: string }, input: CaseInput) => Promise<QuestionCase>;
  removeCase: (ref: SetRef & { caseId: string }) => Promise<void>;

  /** Removes the questions that come from these conversations, in all versions. */
  eraseConversations: (conversationIds: string[], until?: AbortSignal) => Promise<void>;

  /** Reads what a conversation gave to question sets, in pages: exactly what an erasure removes. */
  readTextsOf: (
    conversationId: string,
  ) => AsyncIterable<(Pick<CaseInput, 'question' | 'expected'> & { setId: string; caseId: string })[]>;
};

/**
 * Questions with expected answers (docs/design.md, Evaluation). A change of a set is one transaction that raises its
 * version: cases that it replaces end with the previous version, so an evaluation that has begun keeps reading its own
 * version.
 */
export const createQuestionSets = (connection: Connection): QuestionSets => {
  const models = {
    sets: connection.model<StoredSet>('QuestionSet', setSchema),
    cases: connection.model<StoredCase>('QuestionCase', caseSchema),
  };
  const sets = collectionOf<StoredSet>(models.sets);
  const cases = collectionOf<StoredCase>(models.cases);

  const get = async ({ assistantId, setId }: SetRef): Promise<QuestionSet> => {
    const stored = await sets.findOne({ _id: setId, assistantId });
    if (!stored) throw notFound();
    return toSet(stored);
  };

  const purgeSet = async (setId: string, turn: { holder: string; until?: AbortSignal }): Promise<void> => {
    await deleteInBatches({ collection: cases, filter: { setId }, ...turn });
    await sets.deleteOne({ _id: setId, assistantId: NOBODY });
  };

  const deleteUpTo = createDeletionsUpTo();
  /** Deletes the questions that ended with these versions. If it fails, the next change does it. */
  const deleteOld = ({ assistantId, setId }: SetRef, oldest: number): Promise<void> =>
    deleteUpTo({ key: setId, bound: oldest }, (until) =>
      deleteInBatches({ collection: cases, filter: { setId, until: { $lte: until } }, holder: assistantId }),
    );

  /** Makes the next version of a set. Concurrent changes are made one after the other. */
  const change = async (
    { assistantId, setId }: SetRef,
    write: (version: number, session: ClientSession) => Promise<void>,
  ): Promise<void> => {
    let oldest = 0;
    await inTurn(connection, async (session) => {
      const update = { $inc: { version: 1 }, $set: { changedAt: serverDate() } };
      const options = { session, returnDocument: 'after' } as const;
      const set = await sets.findOneAndUpdate({ _id: setId, assistantId }, update, options);
      if (!set) throw notFound();
      await write(set.version, session);
      oldest = set.version - VERSIONS_KEPT;
    });
    await deleteOld({ assistantId, setId }, oldest);
  };

  /** Ends a case: the previous version is the last one that has it. */
  const end = async (
    { setId, caseId }: SetRef & { caseId: string },
    version: number,
    session: ClientSession,
  ): Promise<StoredCase> => {
    const filter = { setId, until: LIVE, caseId };
    const ended = await cases.findOneAndUpdate(filter, { $set: { until: version } }, { session });
    if (!ended) throw notFound();
    return ended;
  };

  /** Throws if a set has become too large. */
  const requireBound = async (setId: string, session: ClientSession): Promise<void> => {
    const [{ count, bytes } = { count: 0, bytes: 0 }] = await cases
      .aggregate<{ count: number; bytes: number }>(
        [
          { $match: { setId, until: LIVE } },
          { $group: { _id: null, count: { $sum: 1 }, bytes: { $sum: { $bsonSize: '$$ROOT' } } } },
        ],
        { session },
      )
      .toArray();
    if (count > CASES_MAX)
      throw invalid('question', 'too_many', `a set has at most ${CASES_MAX.toLocaleString('en')} questions`);
    if (bytes > CASES_MAX_BYTES)
      throw invalid('question', 'too_large', `the questions of a set have at most ${CASES_MAX_BYTES / 1024} KiB`);
  };

  return {
    models: [models.sets, models.cases],
    get,

    list: async (assistantId) => {
      const stored = await sets.find({ assistantId }).sort({ name: 1 }).limit(SETS_MAX).toArray();
      const counts = await Promise.all(stored.map(({ _id }) => cases.countDocuments({ setId: _id, until: LIVE })));
      return stored.map((one, nth) => ({ ...toSet(one), questions: counts[nth] ?? 0 }));
    },

    create: async (assistantId, name) => {
      const tooMany = () => invalid('name', 'too_many', `an assistant has at most ${SETS_MAX} question sets`);
      const now = serverDate();
      const stored = { _id: newId(), assistantId, name, version: 0, createdAt: now, changedAt: now };
      await insertAtMost({ collection: sets, filter: { assistantId }, max: SETS_MAX, tooMany }, stored);
      return toSet(stored);
    },

    rename: async ({ assistantId, setId }, name) => {
      const options = { returnDocument: 'after' } as const;
      const stored = await sets.findOneAndUpdate({ _id: setId, assistantId }, { $set: { name } }, options);
      if (!stored) throw notFound();
      return toSet(stored);
    },

    remove: async ({ assistantId, setId }) => {
      await inTurn(connection, async (session) => {
        const removed = { $set: { assistantId: NOBODY, name: '', changedAt: serverDate() } };
        const { matchedCount } = await sets.updateOne({ _id: setId, assistantId }, removed, { session });
        if (matchedCount === 0) throw notFound();
      });
      await withDeadline(purgeSet(setId, { holder: assistantId }), PURGED_WITHIN_MS).catch(() => undefined);
    },

    purge: async (until) => {
      while (!until.aborted) {
        const due = { assistantId: NOBODY, changedAt: { $lt: new Date(serverNow() - PURGED_AGAIN_AFTER_MS) } };
        const set = await sets.findOneAndUpdate(due, { $set: { changedAt: serverDate() } });
        if (!set) return;
        await purgeSet(set._id, { holder: NOBODY, until }).catch((cause: unknown) => {
          if (!until.aborted) throw cause;
        });
      }
    },

    readCases: async function* ({ setId, version: present }, version = present) {
      const filter = { setId, until: { $gt: version }, since: { $lte: version } };
      for await (const one of cases.find(filter, { sort: { place: 1 }, batchSize: READ_AT_ONCE })) yield [toCase(one)];
    },

    addCases: async (ref, inputs, { replace = false } = {}) => {
      const { assistantId, setId } = ref;
      let added: StoredCase[] = [];
      await change(ref, async (version, session) => {
        added = inputs.map(({ question, language, expected, conversationIds = [] }, nth) => {
          const caseId = newId();
          const place = version * CASES_MAX + nth;
          const known = { question, language, expected, conversationIds };
          return { _id: caseId, caseId, setId, assistantId, since: version, until: LIVE, place, ...known };
        });
        if (replace) await cases.updateMany({ setId, until: LIVE }, { $set: { until: version } }, { session });
        for (const some of inChunks(added, INSERTED_AT_ONCE)) await cases.insertMany(some, { session });
        await requireBound(setId, session);
      });
      return added.map(toCase);
    },

    changeCase: async (ref, { question, language, expected }) => {
      let changed: StoredCase | null = null;
      await change(ref, async (version, session) => {
        const before = await end(ref, version, session);
        const after = { ...before, _id: newId(), since: version, until: LIVE, question, language, expected };
        await cases.insertOne(after, { session });
        await requireBound(ref.setId, session);
        changed = after;
      });
      if (!changed) throw new Error('a question was changed and is not there');
      return toCase(changed);
    },

    removeCase: (ref) => change(ref, async (version, session) => void (await end(ref, version, session))),

    eraseConversations: async (conversationIds, until) => {
      const filter = { 'conversationIds.0': { $exists: true }, conversationIds: { $in: conversationIds } };
      await deleteInBatches({ collection: cases, filter, holder: NOBODY, ...(until && { until }) });
    },

    readTextsOf: async function* (conversationId) {
      const rows = cases.find(
        { 'conversationIds.0': { $exists: true }, conversationIds: conversationId },
        { projection: { setId: 1, caseId: 1, question: 1, expected: 1 }, batchSize: READ_AT_ONCE },
      );
      for await (const { setId, caseId, question, expected } of rows) yield [{ setId, caseId, question, expected }];
    },
  };
};

const REAL_MAX = 500;
/** How many conversations are searched for questions, the newest first. */
const SCANNED_MAX = 2_000;
const CONVERSATIONS_AT_ONCE = 50;
/** How many of the newest messages of a conversation are searched. */
const NUMBERS_MAX = 80;
/** A result keeps at most this many characters of a reply. */
export const REPLY_MAX = 4_000;
/** How far the time of a change may be ahead of this process's clock. */
const AHEAD_MS = 60_000;

export const RealQuestions = z.object({
  limit: z.int().min(1).max(REAL_MAX).default(100),
  only: z
    .enum(['all', 'unanswered', 'offered', 'escalated'])
    .default('all')
    .meta({ description: 'Only questions whose reply had this end.' }),
  language: LanguageTag.nullish().transform((value) => value ?? null),
  from: z.iso.datetime().nullish(),
  to: z.iso.datetime().nullish(),
});
export type RealQuestions = z.output<typeof RealQuestions>;

type Found = Asked & { at: Date };

const isHandoff = (entry: Entry | undefined): boolean =>
  entry?.messages.some(({ role, content }) => role === 'system' && readSystemMessage(content)?.kind === 'handoff') ??
  false;

/** The questions of some entries, with what each visitor got. Messages that a person answered do not count. */
const questionsIn = (entries: Entry[], conversationId: string): (Found & { isEscalated: boolean })[] =>
  entries.flatMap(({ messages, seq }, nth) =>
    messages.flatMap((message) => {
      const reply = messages.find(({ role, turnId }) => role === 'assistant' && turnId === message.turnId);
      const { language, createdAt: at } = message;
      const question = askedIn(entries, message);
      if (message.role !== 'user' || !reply || question.length > QUESTION_MAX || question.trim() === '') return [];
      const { outcome: kind } = readReply(reply);
      if (kind === 'held') return [];
      const next = entries[nth + 1];
      return {
        question,
        language,
        expected: null,
        caseId: null,
        conversationId,
        conversationIds: [conversationId],
        before: { kind, reply: reply.content.slice(0, REPLY_MAX).toWellFormed() },
        at,
        isEscalated: next?.seq === seq + 1 && isHandoff(next),
      };
    }),
  );

/** Each part of the work runs in its turn. */
type InTurns = { inTurn: <Value>(work: () => Promise<Value>) => Promise<Value>; signal: AbortSignal };

/** Finds the last questions that visitors asked, each text once. Playground conversations do not count. */
export const createFindRealQuestions =
  (changed: Pick<ChangedConversations, 'listBefore' | 'read' | 'readEntries'>) =>
  async (assistantId: string, wanted: RealQuestions, { inTurn, signal }: InTurns): Promise<Asked[]> => {
    const from = wanted.from ? new Date(wanted.from) : new Date(0);
    const to = wanted.to ? new Date(wanted.to) : new Date(serverNow() + AHEAD_MS);
    const isWanted = ({ at, before, language, isEscalated }: ReturnType<typeof questionsIn>[number]): boolean => {
      if (at < from || at > to) return false;
      if (wanted.language && baseLanguage(language ?? '') !== baseLanguage(wanted.language)) return false;
      if (wanted.only === 'escalated') return isEscalated;
      if (wanted.only === 'unanswered') return before?.kind === 'notAnswered';
      return wanted.only === 'all' || before?.kind === 'offered';
    };
    const found = new Map<string, Found>();
    let position: ChangePosition = { at: new Date(serverNow() + AHEAD_MS), id: '' };
    let scanned = 0;
    /** Reads the next conversations. False if there are no more that count. */
    const readNext = async (): Promise<boolean> => {
      const listed = await changed.listBefore(assistantId, position, CONVERSATIONS_AT_ONCE);
      const last = listed.at(-1);
      if (!last) return false;
      position = { at: last.updatedAt, id: last._id };
      scanned += listed.length;
      for (const one of await changed.read(listed.map(({ _id }) => _id))) {
        if (one.channel === 'playground') continue;
        const { entries } = await changed.readEntries(one, Math.max(0, one.seq - NUMBERS_MAX));
        for (const { isEscalated, ...question } of questionsIn(entries, one.conversationId).toReversed()) {
          const key = question.question.trim().toLowerCase();
          if (found.size < wanted.limit && !found.has(key) && isWanted({ isEscalated, ...question }))
            found.set(key, question);
        }
      }
      return last.updatedAt >= from;
    };
    while (scanned < SCANNED_MAX && found.size < wanted.limit && !signal.aborted) {
      if (!(await inTurn(readNext))) break;
    }
    return [...found.values()].map(({ at: _at, ...asked }) => asked);
  };
