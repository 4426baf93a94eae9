import type { Answering, FoundPassage, IndexedEntry, SemanticSearch } from '@parley/understanding';
import type { EngineSettings } from '../../../src/assistants/engine-settings.ts';
import type { ReplySource, SuggestedAction } from '../../../src/assistants/suggested-action.ts';
import type { ReadPassage } from '../../../src/sources/passages.ts';
import type { PassageAccess } from '../passages.ts';

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
  /** True if a provider's reply counts only if it was found to say nothing else than it was given. Default: false. */
  strict?: boolean;
};

export type HistoryMessage = { role: 'user' | 'assistant' | 'operator' | 'system'; content: string; why?: unknown };

export type TurnContext = {
  assistant: AssistantProfile;
  /** The visitor's text, exactly as sent. */
  message: string;
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
  /** Set when the visitor asked for a person. */
  escalate?: 'user_requested';
  /** Language of the reply text. */
  language: string;
  /** How the reply was chosen, as compact JSON without visitor text. Visitors never see it. */
  why: Record<string, unknown>;
};

/** Makes replies: by retrieval, or with an OpenAI-compatible provider. */
export type AssistantEngine = {
  name: string;
  /**
   * True if a turn of this assistant needs a provider, or waits for seconds for another reason. Such turns have their
   * own slots, because they must not delay other assistants. Default: true.
   */
  needsProvider?: (assistant: AssistantProfile) => boolean;
  /**
   * True if the engine needs neither a provider nor the model for this turn, so that the turn may share a commit with
   * the turns before it.
   */
  answersImmediately?: (turn: TurnContext) => boolean;
  reply: (turn: TurnContext) => Promise<EngineReply>;
};
