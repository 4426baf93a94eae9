import {
  countWordings,
  decideReply,
  decidesByWords,
  type ReplyDecision,
  indexInSteps,
  type Inquiry,
  type KnowledgeIndex,
} from '@parley/understanding';
import { LRUCache } from 'lru-cache';
import { MAX_SUGGESTED_ACTIONS, type SuggestedAction } from '../../../src/assistants/suggested-action.ts';
import { createSlices } from '../../../src/process/slices.ts';
import { createSlots } from '../../../src/process/slots.ts';
import type { AssistantEngine, AssistantProfile, EngineEntry, EngineReply, TurnContext } from './engine.ts';
import { isRejection, otherLanguageText, text } from './texts.ts';

export type IndexOptions = {
  /** The most memory of all cached indexes together. One assistant gets at most half. */
  maxBytes?: number;
  /** Called after each build of a large index. `leftOut` is the number of texts that did not fit. */
  onLargeBuilt?: (assistant: Pick<AssistantProfile, 'assistantId'>, leftOut: number) => void;
};

const MAX_BYTES = 128_000_000;
/** For at most this many entries and wordings, a turn waits for the new index, so that it sees the latest edit. */
const SMALL_KNOWLEDGE = { entries: 500, wordings: 2_000 };
/** How many small indexes are built at the same time. Of the large ones, one: their builds need the most memory. */
const SMALL_BUILDS = 8;

type Build = { key: string; index: Promise<KnowledgeIndex<EngineEntry>>; next: AssistantProfile | null };

const keyOf = ({ assistantId, version }: AssistantProfile): string => JSON.stringify([assistantId, version]);
const isSmall = ({ knowledge }: AssistantProfile): boolean =>
  knowledge.length <= SMALL_KNOWLEDGE.entries && countWordings(knowledge) <= SMALL_KNOWLEDGE.wordings;

/** Caches indexes by assistant and version. A large index is built in slices, because the build takes seconds. */
const createIndexes = ({ maxBytes = MAX_BYTES, onLargeBuilt = () => undefined }: IndexOptions) => {
  const built = new LRUCache<string, KnowledgeIndex<EngineEntry>>({
    maxSize: maxBytes,
    sizeCalculation: ({ bytes }) => bytes + 1,
  });
  /**
   * The cache key and build number of each assistant's newest index. With the number, an older build that finishes
   * later does not replace the newest index.
   */
  const latest = new LRUCache<string, { key: string; nth: number }>({ max: 10_000 });
  const building = new Map<string, Build>();
  const smallBuilds = createSlots(({ inUse }) => inUse < SMALL_BUILDS);
  const largeBuilds = createSlots(({ inUse }) => inUse === 0);
  let builds = 0;

  const build = async (assistant: AssistantProfile): Promise<KnowledgeIndex<EngineEntry>> => {
    const slot = await (isSmall(assistant) ? smallBuilds : largeBuilds).acquire(assistant.assistantId);
    if (!slot) throw new Error('too many indexes wait to be built');
    try {
      const slices = createSlices();
      const steps = indexInSteps(assistant, maxBytes / 2);
      for (;;) {
        const step = steps.next();
        if (step.done) return step.value;
        if (slices.isOver()) await slices.next();
      }
    } finally {
      slot.release();
    }
  };

  const startBuild = (slot: string, assistant: AssistantProfile): Build => {
    const { assistantId } = assistant;
    const key = keyOf(assistant);
    builds += 1;
    const nth = builds;
    const index = build(assistant)
      .then((done) => {
        const before = latest.get(assistantId);
        if ((before?.nth ?? 0) < nth) {
          latest.set(assistantId, { key, nth });
          // Two versions of a large index would take the room of other assistants.
          if (before && !isSmall(assistant)) built.delete(before.key);
        }
        built.set(key, done);
        if (!isSmall(assistant)) onLargeBuilt(assistant, done.leftOut + (assistant.leftOut ?? 0));
        return done;
      })
      .finally(() => {
        const { next } = started;
        building.delete(slot);
        if (next && !built.has(keyOf(next))) startBuild(slot, next);
      });
    const started: Build = { key, index, next: null };
    building.set(slot, started);
    index.catch(() => undefined); // nobody waits for this build while an older index serves
    return started;
  };

  /**
   * Builds the index of an assistant. For a large index, only one version is built at a time. Meanwhile turns of newer
   * versions get that version, and only the newest is built next, so a turn never waits for more than two builds.
   */
  const obtain = (assistant: AssistantProfile): Promise<KnowledgeIndex<EngineEntry>> => {
    const key = keyOf(assistant);
    const slot = isSmall(assistant) ? key : assistant.assistantId;
    const running = building.get(slot) ?? startBuild(slot, assistant);
    if (running.key !== key) running.next = assistant;
    return running.index;
  };

  /** The index that can be used now. While a large index is built, turns use the older index. */
  const current = (assistant: AssistantProfile): KnowledgeIndex<EngineEntry> | undefined => {
    const index = built.get(keyOf(assistant));
    if (index || isSmall(assistant)) return index;
    const before = latest.get(assistant.assistantId);
    const last = before && built.get(before.key);
    if (last) void obtain(assistant);
    return last;
  };

  return {
    current,
    /** True if a turn would have to wait for seconds. */
    isLongWait: (assistant: AssistantProfile): boolean => !isSmall(assistant) && current(assistant) === undefined,
    of: async (assistant: AssistantProfile): Promise<KnowledgeIndex<EngineEntry>> =>
      current(assistant) ?? obtain(assistant),
  };
};

const MAX_LABEL = 80;
const MAX_PAYLOAD = 2048;

const questionAction = ({ question }: EngineEntry): SuggestedAction => ({
  label: [...question].length > MAX_LABEL ? `${[...question].slice(0, MAX_LABEL - 1).join('')}…` : question,
  type: 'reply',
  payload: question.slice(0, MAX_PAYLOAD),
});

const talkToPersonAction = (language: string): SuggestedAction => ({
  label: text(language, 'talkToPerson'),
  type: 'escalate',
  payload: 'user_requested',
});

const ownActions = ({ actions }: EngineEntry): SuggestedAction[] => actions.slice(0, MAX_SUGGESTED_ACTIONS);

/** The buttons of a hedged answer. Those that lead away from it come last, and the entry's own fill the rest. */
const hedgedActions = (
  { entry, others }: Extract<ReplyDecision<EngineEntry>, { kind: 'hedge' }>,
  language: string,
): SuggestedAction[] => {
  const label = text(language, 'notMeant');
  const away = [...others.map(questionAction), { label, type: 'reply' as const, payload: label }];
  return [...ownActions(entry).slice(0, MAX_SUGGESTED_ACTIONS - away.length), ...away];
};

/** The texts and buttons of a decision. */
const wordingOf = (decision: ReplyDecision<EngineEntry>, language: string): Partial<EngineReply> & { text: string } => {
  switch (decision.kind) {
    case 'answer':
    case 'hedge': {
      const { entry, confidence, isForeign } = decision;
      const lines = [
        ...(decision.kind === 'hedge' ? [text(language, 'hedge')] : []),
        ...(isForeign ? [otherLanguageText(language, decision.language)] : []),
        entry.answer,
      ];
      return {
        text: lines.join('\n'),
        suggestedActions: decision.kind === 'hedge' ? hedgedActions(decision, language) : ownActions(entry),
        confidence,
        language: decision.language,
      };
    }
    case 'askBack': {
      const { entries, confidence, isLongShot } = decision;
      return {
        text: text(language, 'askBack'),
        suggestedActions: [...entries.map(questionAction), ...(isLongShot ? [talkToPersonAction(language)] : [])],
        confidence,
        low: isLongShot,
      };
    }
    case 'unsure':
      return {
        text: text(language, 'unsure'),
        suggestedActions: [talkToPersonAction(language)],
        confidence: decision.confidence,
        low: true,
      };
    // The visitor gets the holding text until a person answers.
    case 'human':
      return { text: text(language, 'holding'), escalate: 'user_requested' };
    case 'contact':
      return { text: text(language, 'contactNoted') };
    default:
      return { text: text(language, decision.kind) };
  }
};

const toInquiry = (
  { assistant, message, language, history, semanticSearch }: TurnContext,
  index: KnowledgeIndex<EngineEntry> | null,
): Inquiry<EngineEntry> => ({
  message,
  language,
  index,
  answering: assistant.answering ?? 'balanced',
  threshold: assistant.threshold,
  history,
  isRejection: isRejection(message),
  semanticSearch,
});

/** Answers from the assistant's knowledge: `@parley/understanding` decides, this engine indexes and words the reply. */
export const createRetrievalEngine = (options: IndexOptions = {}): AssistantEngine => {
  const indexes = createIndexes(options);
  const hasKnowledge = ({ assistant }: TurnContext): boolean => assistant.knowledge.length > 0;

  return {
    name: 'retrieval',
    // While a large index is built, turns wait where one assistant cannot take all places.
    needsProvider: (assistant) => indexes.isLongWait(assistant),
    answersImmediately: (turn) => {
      if (!hasKnowledge(turn)) return true;
      const index = indexes.current(turn.assistant);
      return index !== undefined && decidesByWords(toInquiry(turn, index)); // without it, the turn would wait for it
    },
    reply: async (turn) => {
      const { language } = turn;
      const index = hasKnowledge(turn) ? await indexes.of(turn.assistant) : null;
      const decision = await decideReply(toInquiry(turn, index));
      return {
        suggestedActions: [],
        confidence: 1,
        low: false,
        language,
        ...wordingOf(decision, language),
        why: { engine: 'retrieval', ...decision.why },
      };
    },
  };
};
