import { type HtmlDocument, parseHtml } from './html.ts';
import type { Section, TextBlock } from './passages.ts';
import { MAX_PASSAGE_CHARS, type Splitter, toLine, toLines } from './text.ts';

type PageProposal = { question: string; answer: string; anchor: string | null };

// Proposals must fit into a knowledge entry, and their answers into a chat.
const MAX_PROPOSALS = 100;
const MAX_QUESTION_CHARS = 500;
/** A longer summary that asks nothing is text or code. */
const MAX_SUMMARY_CHARS = 80;
const MAX_ANSWER_CHARS = 2000;
const MAX_DATA_NODES = 20_000;

/** How questions begin, if they end without their mark, in the languages of the word lists. */
const BEGINNINGS =
  /^(?:how|what|when|where|which|who|whose|why|can i|can you|do i|do you|does|is it|is there|are there|may i|must i|should i|wie|was|wann|wo|woher|wohin|welche[rsnm]?|wer|wem|warum|wieso|weshalb|kann ich|können|darf ich|muss ich|gibt es|comment|qu|que|quand|où|quel(?:le)?s?|pourquoi|combien|puis-je|est-ce|cómo|qué|cuándo|dónde|cuál(?:es)?|quién|por qué|puedo|hay|come|cosa|quando|dove|quale|quali|chi|perché|posso|como|quais|qual|onde|posso|hoe|wat|wanneer|waar|welke?|wie|waarom|kan ik|mag ik|moet ik)(?=[\s’'])/iu;
const LEAST_WORDS = 3;

/** Whether a heading asks something. A beginning alone needs more words: "What's new" is no question. */
export const isQuestion = (heading: string): boolean =>
  /[?？؟]\s*$/.test(heading) || (BEGINNINGS.test(heading) && heading.split(/\s+/).length >= LEAST_WORDS);

const keyOf = (question: string): string =>
  question
    .toLowerCase()
    .replace(/[\s?？؟!.:]+/g, ' ')
    .trim();

/** As many whole sentences of an answer as the limit allows. */
const shortenAnswer = (answer: string, split: Splitter): string => {
  if (answer.length <= MAX_ANSWER_CHARS) return answer;
  let kept = '';
  for (const line of answer.slice(0, MAX_ANSWER_CHARS + MAX_PASSAGE_CHARS).split('\n')) {
    for (const [at, sentence] of split(line).entries()) {
      const longer = kept === '' ? sentence : `${kept}${at === 0 ? '\n' : ' '}${sentence}`;
      if (longer.length > MAX_ANSWER_CHARS) return kept;
      kept = longer;
    }
  }
  return kept;
};

type Json = Record<string, unknown>;

const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null;

const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? value : value === undefined ? [] : [value]);

const isOfType = (node: Json, type: string): boolean =>
  listOf(node['@type']).some((one) => typeof one === 'string' && one.replace(/^.*[/:]/, '') === type);

const textOf = (value: unknown): string => {
  if (typeof value !== 'string') return '';
  if (!/[<&]/.test(value)) return toLines(value);
  return parseHtml(value)
    .blocks.map(({ text }) => text)
    .filter((text) => text !== '')
    .join('\n');
};

/** Questions of a `FAQPage` that the page declares for search engines. */
const declared = ({ data }: Pick<HtmlDocument, 'data'>): PageProposal[] => {
  const found: PageProposal[] = [];
  const nodes: unknown[] = [];
  for (const json of data) {
    try {
      nodes.push(JSON.parse(json));
    } catch {
      // Invalid JSON is ignored, as search engines do.
    }
  }
  for (let at = 0; at < Math.min(nodes.length, MAX_DATA_NODES) && found.length < MAX_PROPOSALS; at += 1) {
    const node = nodes[at];
    const add = (inner: unknown): void => {
      for (const one of listOf(inner).slice(0, MAX_DATA_NODES)) nodes.push(one);
    };
    if (Array.isArray(node)) add(node);
    else if (isObject(node) && isOfType(node, 'Question')) {
      const [accepted] = listOf(node.acceptedAnswer ?? node.suggestedAnswer);
      const question = toLine(textOf(node.name ?? node.text));
      found.push({ question, answer: isObject(accepted) ? textOf(accepted.text) : '', anchor: null });
    } else if (isObject(node)) for (const key of ['@graph', 'mainEntity', 'hasPart']) add(node[key]);
  }
  return found;
};

const writeAnswer = (blocks: readonly TextBlock[]): string => blocks.map(({ text }) => text).join('\n');

/** Headings that ask, and what is folded away under a summary. */
const asked = (sections: readonly Section[]): PageProposal[] =>
  sections.flatMap(({ path, asks, anchor, blocks }) => {
    const question = path.at(-1) ?? '';
    const isFolded = asks && question.length <= MAX_SUMMARY_CHARS && /^\p{L}/u.test(question);
    return path.length > 1 && (isFolded || isQuestion(question))
      ? [{ question, answer: writeAnswer(blocks), anchor }]
      : [];
  });

/** Questions and answers of a page that an owner may accept as entries of the knowledge, each question once. */
export const findProposals = (
  document: Pick<HtmlDocument, 'data'>,
  sections: readonly Section[],
  split: Splitter,
): PageProposal[] => {
  const found = new Map<string, PageProposal>();
  for (const proposal of [...declared(document), ...asked(sections)]) {
    const { question } = proposal;
    const answer = shortenAnswer(proposal.answer, split);
    const key = keyOf(question);
    const known = found.get(key);
    if (known) known.anchor ??= proposal.anchor;
    else if (found.size < MAX_PROPOSALS && key.length > 2 && question.length <= MAX_QUESTION_CHARS && answer.length > 1)
      found.set(key, { question, answer, anchor: proposal.anchor });
  }
  return [...found.values()];
};
