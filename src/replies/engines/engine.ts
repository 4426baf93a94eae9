import type { Answering, FoundPassage, IndexedEntry, SemanticSearch } from '@parley/understanding';
import { baseLanguage, isTraditionalChinese, textsIn } from '@parley/understanding/text';
import type { Assistant } from '../../assistants/assistant.ts';
import type { EngineSettings } from '../../assistants/settings.ts';
import type { ReplySource, SuggestedAction } from '../../assistants/suggested-action.ts';
import type { ReadPassage } from '../../sources/passages.ts';
import type { ReservedCall } from '../../turns/allowances.ts';
import type { PassageAccess } from '../../sources/passage-index.ts';
import texts from './texts.json' with { type: 'json' };

/** A knowledge entry for an engine. */
export type EngineEntry = IndexedEntry & { actions: SuggestedAction[] };

/** The settings of an assistant that an engine needs. `version` changes whenever settings or knowledge change. */
export type AssistantProfile = {
  assistantId: string;
  version: string;
  name: string;
  instructions: string;
  /** The languages of the assistant, the preferred language first. An empty list means any language. */
  languages: string[];
  /** Default: balanced. */
  answering?: Answering;
  /** The minimum confidence for a sure answer. Null: `answering` decides. */
  threshold: number | null;
  knowledge: EngineEntry[];
  /** How many texts of the knowledge are not in `knowledge`, because they exceed the memory. */
  leftOut?: number;
  /** The engine that answers. Default: retrieval. */
  engine?: EngineSettings;
  /** Hosts a provider's reply may link to, in addition to the links in the knowledge. */
  allowedLinks?: string[];
  /**
   * True if a provider's reply is used only if nothing was found in it that the provider was not given. Default: false.
   */
  strict?: boolean;
  /** Tokens that a provider may use in a day. Default: no budget. */
  tokensPerDay?: number | null;
  /** What happens to a turn whose call would exceed `tokensPerDay`. Default: retrieval answers. */
  ifTokensUsedUp?: Assistant['ifTokensUsedUp'];
  /** The number of this version, if the assistant has published versions. */
  publishedVersion?: number | undefined;
  /** Reads it again, for who has let the knowledge go while it waits. Default: it cannot be read again. */
  readAgain?: () => Promise<AssistantProfile>;
};

export type HistoryMessage = { role: 'user' | 'assistant' | 'operator' | 'system'; content: string; why?: unknown };

export type TurnContext = {
  /**
   * An engine that waits for a provider, or for an index, first replaces it by one without knowledge. Nothing else holds
   * the knowledge for this turn.
   */
  assistant: AssistantProfile;
  /** The visitor's text, exactly as sent. */
  message: string;
  /** The texts that came quickly and are answered together. `message` has all of them. */
  messages?: string[];
  /** Canonical BCP 47 tag, decided when the turn was accepted. */
  language: string;
  /** Reads the latest messages before this turn, oldest first. Most turns need no history. */
  history: (entries: number) => Promise<HistoryMessage[]>;
  signal: AbortSignal;
  /**
   * Semantic search, if available. An engine calls it only if the words do not decide, because the call waits for a
   * model.
   */
  semanticSearch?: SemanticSearch | undefined;
  /** The passages of the assistant's sources. Undefined if there are none. */
  passages?: PassageAccess | undefined;
  /**
   * Receives the pieces of a reply that is still being written. Callers see each piece immediately. If the final reply
   * differs from the pieces (after a fall-back), it replaces them.
   */
  onDelta?: (text: string) => void;
  /**
   * For an evaluation: reserves the maximum cost of a call, in addition to the assistant's budget. Null if it does not
   * fit.
   */
  reserveTokens?: ((tokens: number) => Promise<ReservedCall | null>) | undefined;
};

export type EngineReply = {
  text: string;
  suggestedActions: SuggestedAction[];
  /** What the reply is taken from. Default: nothing. */
  sources?: ReplySource[];
  /** The passages that were found, for an engine that writes its own text. */
  passages?: FoundPassage<ReadPassage>[];
  /** The probability that the reply is right, from 0 to 1. */
  confidence: number;
  /** True if the reply is not a sure answer. Two such replies in a row cause an escalation. */
  low: boolean;
  /** Set when a person must answer: the visitor asked for one, or the provider's budget is used up. */
  escalate?: 'user_requested' | 'budget_used_up';
  /** Language of the reply text. */
  language: string;
  /** How the reply was chosen, as compact JSON without visitor text. Visitors never see it. */
  why: Record<string, unknown>;
};

/** Makes replies: by retrieval, or with an OpenAI-compatible provider. */
export type AssistantEngine = {
  name: string;
  /**
   * True if a turn of this assistant needs a provider, or waits for an index. Such turns have their own slots, because
   * they must not delay other assistants. Default: true.
   */
  needsProvider?: (assistant: AssistantProfile) => boolean;
  /**
   * True if the engine needs neither a provider nor the model for this turn, so that the turn may share a commit with
   * the turns before it.
   */
  answersImmediately?: (turn: TurnContext) => boolean | Promise<boolean>;
  /**
   * The assistant at the version that answers turns now. While the index of a large version is built, this is an
   * earlier version. `mayWait`: may wait for the first index. Default: the given assistant.
   */
  atVersion?: (assistant: AssistantProfile, mayWait: boolean) => AssistantProfile | Promise<AssistantProfile>;
  reply: (turn: TurnContext) => Promise<EngineReply>;
};

/** Default texts in the visitor's language. An assistant's own texts replace them. */
type TextKey =
  | 'greeting'
  | 'thanks'
  | 'goodbye'
  | 'yes'
  | 'no'
  /** The engine is not sure enough to answer. Shown with an `escalate` action. */
  | 'unsure'
  /** The engine and its fall-back failed. */
  | 'apology'
  /** The guard refuses the message. */
  | 'refused'
  /** A person handles the conversation. */
  | 'holding'
  /** The visitor can choose between several questions. */
  | 'askBack'
  /** Introduces an answer that may be the wrong one. */
  | 'hedge'
  /** The button below a hedged answer, and the message that it sends. */
  | 'notMeant'
  | 'contactNoted'
  /** Introduces an answer in another language; `{language}` is the name of that language. */
  | 'otherLanguage'
  /** The assistant has no knowledge. */
  | 'noKnowledge'
  /** The visitor asks "Are you a robot?". */
  | 'whoAmI'
  /** Label of the button that asks for a person. */
  | 'talkToPerson';

type Texts = Record<TextKey, string>;

const TEXTS: Readonly<Record<string, Texts>> = texts;

const tableOf = (language: string): Texts | undefined => textsIn(TEXTS, language);

const ENGLISH = texts.en;

export const TEXT_LANGUAGES: readonly string[] = Object.keys(TEXTS);

/** False if `text` would return English because the language has no texts. */
export const hasTexts = (language: string): boolean => tableOf(language) !== undefined;

/** A default text. If the language has no texts, the text is in English. */
export const text = (language: string, key: TextKey): string => (tableOf(language) ?? ENGLISH)[key];

const folded = (message: string): string =>
  message
    .toLowerCase()
    .replace(/[\p{P}\s]+/gu, ' ')
    .trim();
const REJECTIONS: ReadonlySet<string> = new Set(Object.values(TEXTS).map(({ notMeant }) => folded(notMeant)));
const LONGEST_REJECTION = 100;

/** True if the message is what the button “That is not what I meant” sends, in any language. */
export const isRejection = (message: string): boolean =>
  message.length <= LONGEST_REJECTION && REJECTIONS.has(folded(message));

export const holdingText = (language: string): string => text(language, 'holding');
export const apologyText = (language: string): string => text(language, 'apology');
export const refusalText = (language: string): string => text(language, 'refused');

const namers = new Map<string, Intl.DisplayNames>();

/** The name of a language in another language. A tag without a name is returned unchanged. */
const languageName = (language: string, within: string): string => {
  const namer = namers.get(within) ?? new Intl.DisplayNames([within], { type: 'language' });
  namers.set(within, namer);
  try {
    return namer.of(language) ?? language;
  } catch {
    return language;
  }
};

/** For example: "I only have this answer in another language (English):" */
export const otherLanguageText = (language: string, answerLanguage: string): string => {
  const within = isTraditionalChinese(language) ? 'zh-Hant' : hasTexts(language) ? baseLanguage(language) : 'en';
  return text(within, 'otherLanguage').replace('{language}', () => languageName(answerLanguage, within));
};
