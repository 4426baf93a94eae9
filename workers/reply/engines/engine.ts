import type { EngineSettings } from '../../../src/assistants/engine-settings.ts';
import type { SuggestedAction } from '../../../src/assistants/suggested-action.ts';
import type { SemanticSearch } from '../vectors/semantic-search.ts';

/** A knowledge entry as an engine sees it: one question (with other wordings) and its answer. */
export type KnowledgeEntry = {
  entryId: string;
  question: string;
  variants: string[];
  answer: string;
  /** BCP 47 tag of question and answer; null when the author did not say. */
  language: string | null;
  actions: SuggestedAction[];
  tags: string[];
};

/** What an assistant brings to every reply; `version` changes whenever anything an engine may have indexed does. */
export type AssistantProfile = {
  assistantId: string;
  version: string;
  name: string;
  instructions: string;
  /** Languages the assistant speaks, first one preferred; empty = any. */
  languages: string[];
  /** Confidence from which an answer is given without hedging; null = the engine's calibrated default. */
  threshold: number | null;
  knowledge: KnowledgeEntry[];
  /** Left out = retrieval. */
  engine?: EngineSettings;
  /** Hosts a provider's reply may link to, beside what the knowledge links to. */
  allowedLinks?: string[];
};

export type HistoryMessage = { role: 'user' | 'assistant' | 'operator' | 'system'; content: string; why?: unknown };

export type TurnContext = {
  assistant: AssistantProfile;
  /** The visitor's text, exactly as sent. */
  message: string;
  /** Canonical BCP 47 tag decided when the turn was accepted. */
  language: string;
  /** The conversation's latest entries before this message, oldest first: read when asked for, since most answers need none. */
  history: (entries: number) => Promise<HistoryMessage[]>;
  signal: AbortSignal;
  /** What texts mean, where that can be told. Waits for a model, so it is asked only when the words do not decide. */
  semanticSearch?: SemanticSearch | undefined;
  /**
   * For an engine whose text comes in pieces: they are shown while it speaks. What counts is the reply; the pieces should
   * make it up, and where they do not (a fall-back), the reply takes their place.
   */
  onDelta?: (text: string) => void;
};

export type EngineReply = {
  text: string;
  suggestedActions: SuggestedAction[];
  /** 0–1; below the assistant's threshold `low` is set and the text hedges. */
  confidence: number;
  low: boolean;
  /** Set when the assistant should hand over to a person. */
  escalate?: 'user_requested';
  /** Language of the reply text. */
  language: string;
  /** Why this reply: compact, JSON, never shown to visitors, carries no visitor text. */
  why: Record<string, unknown>;
};

/** The one door to whatever makes replies (design: retrieval offline, or an OpenAI-compatible provider). */
export type AssistantEngine = {
  name: string;
  /** Somebody outside may be slow: such turns have slots of their own, so that they hold up no other assistant's. Left out = yes. */
  needsProvider?: (assistant: Pick<AssistantProfile, 'engine'>) => boolean;
  /** Waits for nobody to answer this turn: it may be answered before those ahead of it in its line are committed. */
  answersImmediately?: (turn: TurnContext) => boolean;
  reply: (turn: TurnContext) => Promise<EngineReply>;
};
