import * as z from 'zod';
import { withoutPiledMarks } from '@parley/understanding/text';
import { LanguageTag } from '../assistants/knowledge/entry.ts';
import type { ReplySource, SuggestedAction } from '../assistants/suggested-action.ts';
import type { ReplyOutcome } from '../insights/figures.ts';
import { createSlices } from '../platform/process/slices.ts';
import { parseUrl } from '../platform/process/validation.ts';

/** The longest question of a set or a run (characters). Longer messages are not tried. */
export const QUESTION_MAX = 2_000;

const text = (max: number) => z.string().trim().min(1).max(max);

/** What the assistant should answer. */
export const Expected = z
  .discriminatedUnion('kind', [
    z.object({
      kind: z.literal('entry'),
      entry: text(500).meta({ description: 'A knowledge entry, by its id or its question.' }),
    }),
    z.object({
      kind: z.literal('page'),
      page: text(2_048).meta({ description: 'The address of a page, or the name of a file.' }),
      passage: text(1_000)
        .nullish()
        .meta({ description: 'Words that the quoted passage must contain. Null: any passage of the page.' }),
    }),
    z.object({ kind: z.literal('none').meta({ description: 'The assistant must not answer.' }) }),
    z.object({
      kind: z.literal('text'),
      text: text(1_000).meta({ description: 'Words that the reply must contain.' }),
    }),
  ])
  .meta({ id: 'ExpectedAnswer' });
export type Expected = z.output<typeof Expected>;

/** A question of a set with the answer that is expected. */
export const CaseInput = z.object({
  question: text(QUESTION_MAX),
  language: LanguageTag.nullish()
    .transform((value) => value ?? null)
    .meta({ description: 'Null: the language is detected.' }),
  expected: Expected,
});
export type CaseInput = z.output<typeof CaseInput>;

/**
 * How a reply is judged, the verdicts to look at first in front. With an expected answer: `right`, `offered` (it is one
 * of several to choose from), `hedged` (it is given as perhaps not meant) or `wrong`. Without an expected answer: the
 * `same` reply as the visitor got, or an `other`. A draft's reply is `worse` or `better` than the live one, an `other`
 * or the `same`.
 */
export const VERDICTS = ['worse', 'wrong', 'hedged', 'offered', 'other', 'better', 'right', 'same'] as const;
export type Verdict = (typeof VERDICTS)[number];

/** A count for each verdict, as an answer has it. */
export const VerdictCounts = Object.fromEntries(VERDICTS.map((verdict) => [verdict, z.int().min(0)])) as Record<
  Verdict,
  z.ZodInt
>;
export const wholeCounts = (counts: Partial<Record<Verdict, number>>) =>
  Object.fromEntries(VERDICTS.map((verdict) => [verdict, counts[verdict] ?? 0])) as Record<Verdict, number>;

/** A reply that was made for a question, to be judged. */
export type TriedReply = {
  kind: ReplyOutcome;
  text: string;
  actions: SuggestedAction[];
  sources: ReplySource[];
};

type KnownEntry = { entryId: string; question: string; answer: string };

const folded = (value: string): string =>
  withoutPiledMarks(value).normalize('NFKC').toLowerCase().replace(/\s+/g, ' ').trim();
const contains = (whole: string, part: string): boolean => folded(whole).includes(folded(part));

/** An assistant may have thousands of entries, so other work runs in between. */
const isAny = async (entries: KnownEntry[], test: (entry: KnownEntry) => boolean): Promise<boolean> => {
  const slices = createSlices();
  for (const one of entries) {
    if (test(one)) return true;
    if (slices.isOver()) await slices.next();
  }
  return false;
};

/** Compares two addresses, without the anchor unless the expected one has an anchor. Other texts must be equal. */
const isPage = (given: string, page: string): boolean => {
  const [one, other] = [parseUrl(given), parseUrl(page)];
  if (!one || !other) return given === page;
  if (other.hash === '') one.hash = '';
  return one.href.replace(/\/$/, '') === other.href.replace(/\/$/, '');
};

/** True if one of the entries has this id or question. */
const hasEntry = async (entries: KnownEntry[], wanted: string): Promise<boolean> => {
  if (entries.some(({ entryId, question }) => entryId === wanted || question === wanted)) return true;
  const question = folded(wanted);
  return isAny(entries, (one) => folded(one.question) === question);
};

const gives = async (
  expected: Expected,
  { text: reply, sources }: TriedReply,
  entries: KnownEntry[],
): Promise<boolean> => {
  switch (expected.kind) {
    case 'entry':
      return hasEntry(
        entries.filter(({ answer }) => reply.endsWith(answer)),
        expected.entry,
      );
    case 'page':
      return sources.some(
        ({ url, title, quote }) =>
          isPage(url ?? title, expected.page) && (expected.passage == null || contains(quote, expected.passage)),
      );
    case 'text':
      return contains(reply, expected.text);
    case 'none':
      return false;
  }
};

/** True if the visitor can choose the expected answer. */
const offers = async (expected: Expected, { actions }: TriedReply, entries: KnownEntry[]): Promise<boolean> => {
  const payloads = new Set(actions.flatMap(({ type, payload }) => (type === 'escalate' ? [] : [payload])));
  const offered = entries.filter(({ question }) => payloads.has(question));
  switch (expected.kind) {
    case 'entry':
      return hasEntry(offered, expected.entry);
    case 'page':
      return [...payloads].some((payload) => isPage(payload, expected.page));
    case 'text':
      return isAny(offered, ({ answer }) => contains(answer, expected.text));
    case 'none':
      return false;
  }
};

/**
 * Judges a reply by the answer that is expected. No model is asked, so the same reply always gets the same verdict.
 * `isOwnText`: the reply is not the text of an entry. Null if an entry is expected, because such a reply may give its
 * answer in other words: a person decides.
 */
export const judgeReply = async (
  expected: Expected,
  reply: TriedReply,
  { entries, isOwnText = false }: { entries: KnownEntry[]; isOwnText?: boolean },
): Promise<Verdict | null> => {
  const { kind } = reply;
  if (expected.kind === 'none') {
    if (kind === 'answered') return 'wrong';
    return kind === 'hedged' || kind === 'offered' ? kind : 'right';
  }
  const isGiven = kind !== 'offered' && kind !== 'notAnswered' && (await gives(expected, reply, entries));
  if (isGiven) return kind === 'hedged' ? 'hedged' : 'right';
  if (isOwnText && expected.kind === 'entry' && kind === 'answered') return null;
  return (await offers(expected, reply, entries)) ? 'offered' : 'wrong';
};

type Compared = { kind: ReplyOutcome; text: string; judged: Verdict | null };

const FROM_BEST: Partial<Record<Verdict, number>> = { right: 0, hedged: 1, offered: 2, wrong: 3 };
const FROM_SUREST: Partial<Record<ReplyOutcome, number>> = { answered: 0, hedged: 1, offered: 2, notAnswered: 3 };

/**
 * Compares the reply of a draft with the live one. If both are judged, their verdicts decide. If not, a reply that no
 * longer answers is worse and one that begins to answer is better; two different answers are `other`: a person decides.
 */
export const compareReplies = (live: Compared, draft: Compared): Verdict => {
  const steps =
    live.judged !== null && draft.judged !== null
      ? [FROM_BEST[live.judged], FROM_BEST[draft.judged]]
      : [FROM_SUREST[live.kind], FROM_SUREST[draft.kind]];
  const [before = 0, after = 0] = steps;
  if (after !== before && steps.every((step) => step !== undefined)) return after > before ? 'worse' : 'better';
  return live.text === draft.text ? 'same' : 'other';
};

/**
 * How a text differs from the one that it is compared with: links, numbers and names that only one of them has, and how
 * near their meanings are (a cosine; null without the model).
 */
export type Difference = { before: string[]; now: string[]; meaning: number | null };

type Judged = { verdict: Verdict; confidence: number; difference?: Difference | null };

/**
 * The order in which a person should look at results, the least certain first: 0 to 8. Among `wrong` and `worse`
 * results, the surest reply is first. Among other results, the least sure reply is first. Of compared texts, those with
 * different facts are first, then those farthest apart in meaning.
 */
export const doubtOf = ({ verdict, confidence, difference }: Judged): number => {
  const isBad = verdict === 'wrong' || verdict === 'worse';
  const { before = [], now = [], meaning = null } = difference ?? {};
  const nearness = difference && (Math.max(0, meaning ?? 0) + (before.length + now.length > 0 ? 0 : 1)) / 2;
  const sure = Math.min(0.999, Math.max(0, nearness ?? confidence));
  return VERDICTS.indexOf(verdict) + (isBad ? 0.999 - sure : sure);
};
