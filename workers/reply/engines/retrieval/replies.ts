import { MAX_SUGGESTED_ACTIONS, type SuggestedAction } from '../../../../src/assistants/suggested-action.ts';
import { baseLanguage } from '../../../../src/language/base.ts';
import { decideLanguage } from '../../../../src/language/decide.ts';
import type { EngineReply, TurnContext } from '../engine.ts';
import { otherLanguageText, text, type TextKey } from '../texts.ts';
import type { Hit } from './lexical-search.ts';

const MAX_LABEL = 80;
const MAX_PAYLOAD = 2048;

type ReplyKind = TextKey | 'answer' | 'human' | 'contact';

/** How the entries were found. `words only` means that the model gave no vector in time, so the words decided. */
type FoundBy = 'wording' | 'words' | 'words only' | 'both';

/** The data from which a reply and its `why` are made. */
export type ReplyContext = { turn: TurnContext; threshold: number; startedAt: number; hits: Hit[]; by: FoundBy };

const rounded = (value: number, digits: number): number => Number(value.toFixed(digits));

const toWhy = ({ entry, confidence, words, cosine }: Hit) => ({
  entryId: entry.entryId,
  score: rounded(confidence, 2),
  ...(words !== undefined && { words: rounded(words, 2) }),
  ...(cosine !== undefined && { meaning: rounded(cosine, 3) }),
});

const createReply = (
  { turn, threshold, startedAt, hits, by }: ReplyContext,
  kind: ReplyKind,
  reply: Partial<EngineReply> & { text: string },
): EngineReply => ({
  suggestedActions: [],
  confidence: 1,
  low: false,
  language: turn.language,
  ...reply,
  why: {
    engine: 'retrieval',
    kind,
    language: reply.language ?? turn.language,
    ...(hits.length > 0 && { by }),
    hits: hits.map(toWhy),
    threshold,
    ms: rounded(performance.now() - startedAt, 3),
  },
});

/** A reply with a default text. */
export const textReply = (context: ReplyContext, key: TextKey, kind: ReplyKind = key): EngineReply =>
  createReply(context, kind, { text: text(context.turn.language, key) });

/** A handoff to a person. The visitor gets the holding text. */
export const handoffReply = (context: ReplyContext): EngineReply =>
  createReply(context, 'human', { text: text(context.turn.language, 'holding'), escalate: 'user_requested' });

/**
 * True if the reply must say that its answer is in another language. False if the visitor wrote in the answer's
 * language.
 */
const isForeign = (answerLanguage: string, { message, language }: TurnContext): boolean => {
  const base = baseLanguage(answerLanguage);
  if (base === baseLanguage(language)) return false;
  const written = decideLanguage({ message, allowed: [answerLanguage, language] });
  return !(written.decided && baseLanguage(written.language) === base);
};

export const answerReply = (context: ReplyContext, hit: Hit): EngineReply => {
  const { entry, group, confidence } = hit;
  const language = entry.language ?? group.language;
  const note = isForeign(language, context.turn) ? `${otherLanguageText(context.turn.language, language)}\n` : '';
  return createReply(context, 'answer', {
    text: `${note}${entry.answer}`,
    suggestedActions: entry.actions.slice(0, MAX_SUGGESTED_ACTIONS),
    confidence,
    language,
  });
};

const questionAction = ({ entry }: Hit): SuggestedAction => ({
  label:
    [...entry.question].length > MAX_LABEL
      ? `${[...entry.question].slice(0, MAX_LABEL - 1).join('')}…`
      : entry.question,
  type: 'reply',
  payload: entry.question.slice(0, MAX_PAYLOAD),
});

const talkToPersonAction = ({ turn }: ReplyContext): SuggestedAction => ({
  label: text(turn.language, 'talkToPerson'),
  type: 'escalate',
  payload: 'user_requested',
});

/** Offers likely questions as buttons. */
export const offerQuestions = (context: ReplyContext, hits: Hit[], { longShot = false } = {}): EngineReply =>
  createReply(context, 'askBack', {
    text: text(context.turn.language, 'askBack'),
    suggestedActions: [...hits.map(questionAction), ...(longShot ? [talkToPersonAction(context)] : [])],
    confidence: hits[0]?.confidence ?? 0,
    low: longShot,
  });

/** The unsure text, with a button that asks for a person. */
export const unsureReply = (context: ReplyContext): EngineReply =>
  createReply(context, 'unsure', {
    text: text(context.turn.language, 'unsure'),
    suggestedActions: [talkToPersonAction(context)],
    confidence: context.hits[0]?.confidence ?? 0,
    low: true,
  });
