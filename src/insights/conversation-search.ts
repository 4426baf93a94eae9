import type { Connection, mongo } from 'mongoose';
import { fold, foldBeginning, segmentWords, UNSPACED } from '@parley/understanding/text';
import { isUuid } from '../platform/process/ids.ts';
import { mapAtMost } from '../platform/process/slots.ts';
import { inChunks } from '../platform/mongo/batches.ts';
import { collectionOf, escapeRegExp, schemaOf, timeLimit } from '../platform/mongo/mongo.ts';

/** Longer texts are cut before they are read. */
const MAX_LENGTH = 10_000;
/** Longer words are cut. A search word is cut in the same way, so that it still matches. */
const LONGEST_WORD = 64;
const MAX_QUERY_WORDS = 12;

const WORD = /[\p{L}\p{M}\p{N}]+/gu;
/** Chinese and Japanese characters. They are read in pairs, so that a search also finds a part of a longer word. */
const PAIRED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}ー]/u;
const RUNS =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}ー]+|[^\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}ー]+/gu;

const segmenter = new Intl.Segmenter('th', { granularity: 'word' });

/** All pairs of neighbouring characters, and the last character alone: a search for it is a search for a prefix. */
const pairsOf = (run: string): string[] => {
  const characters = [...run];
  return characters.map((character, at) => `${character}${characters[at + 1] ?? ''}`);
};

const partsOf = (word: string): string[] => {
  if (!UNSPACED.test(word)) return [word];
  return (word.match(RUNS) ?? []).flatMap((run) => {
    if (PAIRED.test(run)) return pairsOf(run);
    return UNSPACED.test(run) ? segmentWords(segmenter, run) : [run];
  });
};

const readWords = (text: string): string[] =>
  (foldBeginning(text, MAX_LENGTH).match(WORD) ?? [])
    .flatMap(partsOf)
    .map((word) => (word.length > LONGEST_WORD ? word.slice(0, LONGEST_WORD).toWellFormed() : word));

/** The distinct words of a text, folded. */
export const searchWordsOf = (text: string): Set<string> => new Set(readWords(text));

/**
 * The words of a search. The last word is a prefix, because the operator may still be typing it. Null if the text has
 * no word.
 */
const readSearch = (text: string): { words: string[]; prefix: string } | null => {
  const all = readWords(text).slice(0, MAX_QUERY_WORDS);
  const prefix = all.pop();
  if (prefix === undefined) return null;
  // A run that is read in pairs ends with a single character, which is also in the pair before it.
  const before = all.at(-1);
  const isTail = before !== undefined && PAIRED.test(prefix) && [...prefix].length === 1 && before.endsWith(prefix);
  if (isTail) return { words: [...new Set(all.slice(0, -1))], prefix: before };
  return { words: [...new Set(all)].filter((word) => word !== prefix), prefix };
};

/**
 * What the projection has read of a conversation. `seq` is the last message that is counted and searchable. It is the
 * guard of every write of the projection.
 */
export type ProjectedConversation = {
  /** The conversation id. */
  _id: string;
  /** The `_id` of the conversation document. */
  key: string;
  assistantId: string;
  /** `updatedAt` of the conversation when it was read. */
  updatedAt: Date;
  seq: number;
  /** The last resolution that is counted. */
  resolvedAt: Date | null;
  /** True once the assistant could not answer a question. What an operator writes after that is learned. */
  hasMissed?: boolean;
  /** The group of the last question that the assistant could not answer. */
  missId?: string;
  /** The folded `session_id`. */
  session: string;
  /** The words of all messages, folded. */
  terms: string[];
};

const BY_UPDATE = 'by_update';
const BY_TERM = 'by_term';

const schema = schemaOf<ProjectedConversation>('search');
// The time is not part of this index. Otherwise each message would rewrite the index entries of all earlier words.
schema.index({ assistantId: 1, terms: 1 }, { name: BY_TERM });
// Contains the session, so that a search for a part of a session id reads only this index.
schema.index({ assistantId: 1, updatedAt: -1, _id: -1, session: 1, key: 1 }, { name: BY_UPDATE });

export type FoundConversation = { conversationId: string; key: string; updatedAt: Date };
type SearchPosition = { at: Date; id: string };

/** If a word is in at most this many conversations, all of them are read and sorted. */
const RARE = 2_000;
/**
 * A word that more than `RARE` conversations have is first looked for in this many of the newest conversations. They
 * usually fill the page.
 */
const NEWEST = 5_000;
/**
 * If these do not fill the page, a word in fewer conversations than this is looked up in the index of words. For a more
 * frequent word, conversations are read from the newest back.
 */
const FREQUENT = 30_000;
/** A search that takes longer than this is ended. The operator then has to search for other words. */
const WITHIN_MS = 3_000;
/** How many statements of a search MongoDB runs at once. */
const READS_AT_ONCE = 2;
const SHORTEST_SESSION_PART = 2;
const LONGEST_SESSION = 512;

type Filter = mongo.Filter<ProjectedConversation>;
type Row = Pick<ProjectedConversation, '_id' | 'key' | 'updatedAt'>;
type Range = {
  assistantIds: string[];
  before: SearchPosition | undefined;
  limit: number;
  signal: AbortSignal | undefined;
};

export const foldSession = (sessionId: string): string => fold(sessionId).slice(0, LONGEST_SESSION).toWellFormed();

const rangeOf = ({ assistantIds, before }: Range): Filter => ({
  assistantId: { $in: assistantIds },
  ...(before && {
    updatedAt: { $lte: before.at },
    $or: [{ updatedAt: { $lt: before.at } }, { updatedAt: before.at, _id: { $lt: before.id } }],
  }),
});

const NEWEST_FIRST = { updatedAt: -1, _id: -1 } as const;
const PROJECTION = { _id: 1, key: 1, updatedAt: 1 } as const;

const newestFirst = (a: Row, b: Row): number =>
  b.updatedAt.getTime() - a.updatedAt.getTime() || (a._id < b._id ? 1 : -1);

export const searchModel = (connection: Connection) =>
  connection.model<ProjectedConversation>('ProjectedConversation', schema);

/**
 * Finds conversations of these assistants, latest change first. A conversation is found if its messages contain all
 * words of the text, the last one as the beginning of a word, or if the text is its id or a part of its session id.
 * `before` is the position of the last conversation of the previous page. A conversation can be found a few seconds
 * after its last message.
 */
export type FindByWords = (
  assistantIds: string[],
  text: string,
  range: { before?: SearchPosition | undefined; limit: number; signal?: AbortSignal | undefined },
) => Promise<FoundConversation[]>;

/** Finds conversations by the words of their messages, or by a part of their session id. */
export const createConversationSearch = (connection: Connection): { findByWords: FindByWords } => {
  const rows = collectionOf<ProjectedConversation>(searchModel(connection));

  const inRanges = <Result>(range: Range, work: (some: Filter) => Promise<Result>): Promise<Result[]> =>
    mapAtMost(READS_AT_ONCE, inChunks(range.assistantIds), (assistantIds) => work(rangeOf({ ...range, assistantIds })));

  const limitsOf = ({ signal }: Pick<Range, 'signal'>) => ({ ...timeLimit(WITHIN_MS), ...(signal && { signal }) });

  const read = async (range: Range, conditions: Filter[], hint: string): Promise<Row[]> => {
    const found = await inRanges(range, (some) =>
      rows
        .find<Row>({ $and: [some, ...conditions] }, { projection: PROJECTION, hint, ...limitsOf(range) })
        .sort(NEWEST_FIRST)
        .limit(range.limit)
        .toArray(),
    );
    return found.flat().toSorted(newestFirst).slice(0, range.limit);
  };

  const count = (range: Range, filter: Filter): Promise<number> =>
    rows.countDocuments(
      { assistantId: { $in: range.assistantIds }, ...filter },
      { limit: FREQUENT, hint: BY_TERM, ...limitsOf(range) },
    );

  /** The newest conversations of the range, at least as many as `NEWEST` says. Only an index is read. */
  const newestOf = async (range: Range): Promise<Filter> => {
    const found = await inRanges(range, (some) =>
      rows
        .find(some, { projection: { _id: 1, updatedAt: 1 }, hint: BY_UPDATE, ...limitsOf(range) })
        .sort(NEWEST_FIRST)
        .skip(NEWEST)
        .limit(1)
        .toArray(),
    );
    const last = Math.max(...found.flat().map(({ updatedAt }) => updatedAt.getTime()));
    return Number.isFinite(last) ? { updatedAt: { $gt: new Date(last) } } : {};
  };

  const byWords = async (text: string, range: Range): Promise<Row[]> => {
    const search = readSearch(text);
    if (!search) return [];
    const prefix: Filter = { terms: { $regex: `^${search.prefix}` } }; // letters and digits need no escape
    const conditionsOfWords = [prefix, ...search.words.map((word): Filter => ({ terms: word }))];
    const [prefixCount = 0, ...counts] = await mapAtMost(READS_AT_ONCE, conditionsOfWords, (one) => count(range, one));
    const rarest = Math.min(prefixCount, ...counts);
    if (rarest === 0) return [];
    const rarestWord = rarest === prefixCount ? undefined : search.words[counts.indexOf(rarest)];
    // The other words are expressions, which cannot use an index. So the index is read for the rarest word.
    const others = search.words
      .filter((word) => word !== rarestWord)
      .map((word): Filter => ({ $expr: { $in: [{ $literal: word }, '$terms'] } }));
    const indexed: Filter[] = rarestWord === undefined ? [prefix] : [{ terms: rarestWord }, prefix];
    const conditions = [...indexed, ...others];
    const complete = (): Promise<Row[]> => read(range, conditions, rarest < FREQUENT ? BY_TERM : BY_UPDATE);
    if (rarest <= RARE) return complete();
    const newest = await read(range, [...conditions, await newestOf(range)], BY_UPDATE);
    return newest.length === range.limit ? newest : complete();
  };

  const bySession = async (text: string, range: Range): Promise<Row[]> => {
    const part = foldSession(text.trim());
    if (part.length < SHORTEST_SESSION_PART || /\s/.test(part)) return [];
    return read(range, [{ session: { $regex: escapeRegExp(part) } }], BY_UPDATE);
  };

  const byId = async (text: string, range: Range): Promise<Row[]> =>
    isUuid(text)
      ? rows
          .find<Row>({ $and: [{ _id: text }, rangeOf(range)] }, { projection: PROJECTION, ...limitsOf(range) })
          .toArray()
      : [];

  return {
    findByWords: async (assistantIds, text, { before, limit, signal }) => {
      if (assistantIds.length === 0) return [];
      const range = { assistantIds, before, limit, signal };
      // One after the other, so that a search never has more than `READS_AT_ONCE` statements in flight.
      const found = [await byId(text.trim(), range), await byWords(text, range), await bySession(text, range)];
      const distinct = new Map(found.flat().map((row) => [row._id, row]));
      return [...distinct.values()]
        .toSorted(newestFirst)
        .slice(0, limit)
        .map(({ _id, key, updatedAt }) => ({ conversationId: _id, key, updatedAt }));
    },
  };
};
