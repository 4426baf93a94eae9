import { setTimeout as sleep } from 'node:timers/promises';
import {
  countWordings,
  decideReply,
  decidesByWords,
  type ReplyDecision,
  type Choice,
  indexInSteps,
  type Inquiry,
  type KnowledgeIndex,
  PassageIndex,
  findContactDetails,
  joinMessages,
} from '@parley/understanding';
import {
  isSafeLink,
  MAX_SUGGESTED_ACTIONS,
  type ReplySource,
  type SuggestedAction,
} from '../../assistants/suggested-action.ts';
import { WORTH } from '../../assistants/knowledge/store.ts';
import { inSlices, restIfBusy, workFor } from '../../platform/process/slices.ts';
import { createSlots, LEAST_TIME_FIRST, type Slot, type Slots } from '../../platform/process/slots.ts';
import type { ReadPassage } from '../../sources/passages.ts';
import type { TurnPassages } from '../../sources/passage-index.ts';
import {
  type AssistantEngine,
  type AssistantProfile,
  type EngineEntry,
  type EngineReply,
  isRejection,
  otherLanguageText,
  text,
  type TurnContext,
} from './engine.ts';
import { createLru, createSharedMemory, type SharedMemory } from '../../platform/process/lru.ts';

export type IndexOptions = {
  /** Where indexes are held. */
  memory?: SharedMemory;
  /** Drafts make room for what is live. */
  isForDrafts?: boolean;
  /** The maximum memory of one index, in bytes. */
  maxBytes?: number;
  /** Called after each build of a large index. `leftOut` is the number of texts that did not fit. */
  onLargeBuilt?: (assistant: Pick<AssistantProfile, 'assistantId'>, leftOut: number) => void;
};

/** The maximum memory of an assistant's index. */
const MAX_BYTES = 64_000_000;
/** For at most so much, a turn waits for the new index, so that it sees the latest edit. */
const SMALL = { entries: 500, wordings: 2_000, chars: 150_000 };
/** The index reads at most so many characters of each text. */
const READ_CHARS = 1_000;
/** Work is counted in characters that are read. To begin a text takes as long as so many of them. */
const TEXT_WORK = 10;
/** Knowledge with more work than this is large: its index takes seconds. */
const LARGE_WORK = 1_000_000;
/**
 * How many indexes of each size are built at the same time. The sizes do not wait for each other. Only one large index is
 * built at a time, because it needs much memory.
 */
const BUILDS = { small: 8, middle: 2, large: 1 };
type Size = keyof typeof BUILDS;
/** How much work a build does in a millisecond. */
const WORK_PER_MS = 300;

/**
 * If an index makes room for other assistants although it is in use, the next ones of its assistant get half of the memory
 * for words, but at least this part of the maximum, for so long. So turns do not go on building what leaves at once.
 */
const LEAST_SHARE = 1 / 8;
const LESS_FOR_MS = 10 * 60_000;
/** After the build of a newer version, the next one rests for so many times as long as it took, if turns have an index. */
const REST_SHARE = 4;

/** An index, with the assistant that it was built for. */
type Built = { index: KnowledgeIndex<EngineEntry>; assistant: AssistantProfile; most: number };
/** What is to be built. It holds no knowledge while it waits, because that of each version may have 60 MB. */
type Wanted = { assistantId: string; key: string; read: () => Promise<AssistantProfile> } & Measured;
/** `hurry` ends its rest, because a turn waits for it. */
type Build = { key: string; done: Promise<Built>; hurry: () => void; next: Wanted | null };

/** With the languages, which decide how words are read: a profile that is read again may have earlier ones. */
const keyOf = ({ assistantId, version, languages }: AssistantProfile): string =>
  JSON.stringify([assistantId, version, languages]);

type Measured = { size: Size; work: number };
const measure = (knowledge: EngineEntry[]): Measured => {
  let chars = 0;
  for (const { question, answer, variants } of knowledge) {
    for (const { length } of [question, answer, ...variants]) chars += Math.min(length, READ_CHARS);
  }
  const wordings = countWordings(knowledge);
  const work = chars + TEXT_WORK * (wordings + knowledge.length);
  if (knowledge.length <= SMALL.entries && wordings <= SMALL.wordings && chars <= SMALL.chars) {
    return { size: 'small', work };
  }
  return { size: work > LARGE_WORK ? 'large' : 'middle', work };
};
/** Measured once, because every turn asks, and there may be half a million texts. */
const measures = new WeakMap<EngineEntry[], Measured>();
const measured = ({ knowledge }: AssistantProfile): Measured => {
  const found = measures.get(knowledge) ?? measure(knowledge);
  measures.set(knowledge, found);
  return found;
};
const isSmall = (assistant: AssistantProfile): boolean => measured(assistant).size === 'small';
const itself = (assistant: AssistantProfile) => async () => assistant;
const wantedOf = (assistant: AssistantProfile): Wanted => ({
  assistantId: assistant.assistantId,
  key: keyOf(assistant),
  ...measured(assistant),
  read: assistant.readAgain ?? itself(assistant),
});

/** Caches indexes by assistant and version. A large index is built in slices, because the build takes seconds. */
const createIndexes = ({
  memory = createSharedMemory(),
  isForDrafts = false,
  maxBytes = MAX_BYTES,
  onLargeBuilt = () => undefined,
}: IndexOptions) => {
  const built = memory.openCache<Built>({
    ...(isForDrafts ? WORTH.draft : WORTH.words),
    onPushedOut: (assistantId, { index: { bytes, entryBytes }, assistant }) => {
      const words = Math.max(LEAST_SHARE * maxBytes, (bytes - entryBytes) / 2);
      if (!isForDrafts && !isSmall(assistant)) less.set(assistantId, Math.min(maxBytes, entryBytes + words));
    },
  });
  /** The memory of those that get less. */
  const less = createLru<number>({ most: 10_000, ttl: LESS_FOR_MS });
  const mostOf = (assistantId: string): number => less.get(assistantId) ?? maxBytes;
  /** The index that was chosen for a turn. The turn uses no other index until it ends. */
  const chosen = new WeakMap<AssistantProfile, KnowledgeIndex<EngineEntry>>();
  /**
   * The cache key and build number of each assistant's newest index. With the number, an older build that finishes
   * later does not replace the newest index.
   */
  const latest = createLru<{ key: string; nth: number; restUntil: number }>({ most: 10_000 });
  const building = new Map<string, Build>();
  const slotsFor = (most: number): Slots => createSlots(({ inUse }) => inUse < most, LEAST_TIME_FIRST);
  const slots = { small: slotsFor(BUILDS.small), middle: slotsFor(BUILDS.middle), large: slotsFor(BUILDS.large) };
  let builds = 0;

  /** Waits while the last build of a newer version rests, until a turn needs the index. */
  const rest = async (assistantId: string, hurried: Promise<void>): Promise<void> => {
    const { restUntil } = latest.get(assistantId) ?? { restUntil: 0 };
    const ms = restUntil - performance.now();
    if (ms > 0) await Promise.race([sleep(ms, undefined, { ref: false }), hurried]);
  };

  /** Reads the assistant in a slot for its size, which may have changed during the wait. */
  const readInSlot = async (wanted: Wanted): Promise<{ slot: Slot; assistant: AssistantProfile }> => {
    const { assistantId, read, size, work } = wanted;
    const slot = await slots[size].acquire(assistantId, { expectedMs: work / WORK_PER_MS });
    if (!slot) throw new Error('too many indexes wait to be built');
    const assistant = await read().catch((cause: unknown) => {
      slot.release();
      throw cause;
    });
    const present = measured(assistant);
    if (present.size === size) return { slot, assistant };
    slot.release();
    return readInSlot({ ...wanted, ...present });
  };

  /** Builds the index, as the `nth` one of all. */
  const build = async (wanted: Wanted, nth: number, hurried: Promise<void>): Promise<Built> => {
    const { assistantId } = wanted;
    await rest(assistantId, hurried);
    const { slot, assistant } = await readInSlot(wanted);
    try {
      const most = mostOf(assistantId);
      const before = built.get(keyOf(assistant));
      if (before && before.most >= most) return before; // the last build has read this version already
      const since = performance.now();
      const made = { index: await inSlices(indexInSteps(assistant, most)), assistant, most };
      keep(made, nth, performance.now() - since);
      return made;
    } finally {
      slot.release();
    }
  };

  const keep = (made: Built, nth: number, ms: number): void => {
    const { index, assistant } = made;
    const { assistantId } = assistant;
    const key = keyOf(assistant);
    const before = latest.get(assistantId);
    if ((before?.nth ?? 0) < nth) {
      const isNewer = before !== undefined && built.has(before.key);
      latest.set(assistantId, { key, nth, restUntil: isNewer ? performance.now() + REST_SHARE * ms : 0 });
      // Two versions of an index would take the room of other assistants.
      if (before) built.delete(before.key);
    }
    built.set(key, made, { bytes: index.bytes, holder: assistantId });
    if (!isSmall(assistant)) onLargeBuilt(assistant, index.leftOut + (assistant.leftOut ?? 0));
  };

  const startBuild = (slot: string, wanted: Wanted): Build => {
    builds += 1;
    const { promise: hurried, resolve: hurry } = Promise.withResolvers<void>();
    const done = build(wanted, builds, hurried).finally(() => {
      const { next } = started;
      building.delete(slot);
      if (next && !built.has(next.key)) startBuild(slot, next);
    });
    const started: Build = { key: wanted.key, done, hurry, next: null };
    building.set(slot, started);
    done.catch(() => undefined); // nobody waits for this build while an older index serves
    return started;
  };

  /**
   * Builds the index of an assistant. For a large index, only one version is built at a time. Meanwhile turns of newer
   * versions get that version, and only the newest is built next, so a turn never waits for more than two builds.
   */
  const startOf = (assistant: AssistantProfile): Build => {
    const key = keyOf(assistant);
    const slot = isSmall(assistant) ? key : assistant.assistantId;
    const running = building.get(slot) ?? startBuild(slot, wantedOf(assistant));
    if (running.key !== key) running.next = wantedOf(assistant);
    return running;
  };
  const obtain = (assistant: AssistantProfile): Promise<Built> => {
    const running = startOf(assistant);
    running.hurry();
    return running.done;
  };

  /** The index that can be used now. While a large index is built, turns use the older index. */
  const newest = (assistant: AssistantProfile): Built | undefined => {
    const own = built.get(keyOf(assistant));
    if (isSmall(assistant) || (own && own.most >= mostOf(assistant.assistantId))) return own;
    const before = latest.get(assistant.assistantId);
    const last = own ?? (before && built.get(before.key));
    if (last) startOf(assistant);
    return last;
  };

  const current = (assistant: AssistantProfile): KnowledgeIndex<EngineEntry> | undefined =>
    chosen.get(assistant) ?? newest(assistant)?.index;

  const choose = ({ index, assistant }: Built): AssistantProfile => {
    const own = { ...assistant };
    chosen.set(own, index);
    return own;
  };

  return {
    current,
    atVersion: (assistant: AssistantProfile, mayWait: boolean): AssistantProfile | Promise<AssistantProfile> => {
      const now = newest(assistant);
      if (now) return choose(now);
      return mayWait ? obtain(assistant).then(choose) : assistant;
    },
    /** The turn has the knowledge of the index then. Meanwhile it has none. */
    of: async (turn: TurnContext): Promise<KnowledgeIndex<EngineEntry>> => {
      const now = current(turn.assistant);
      if (now) return now;
      const obtained = obtain(turn.assistant);
      turn.assistant = { ...turn.assistant, knowledge: [] };
      const { index, assistant } = await obtained;
      turn.assistant = { ...turn.assistant, version: assistant.version, knowledge: assistant.knowledge };
      return index;
    },
  };
};

type Decision = ReplyDecision<EngineEntry, ReadPassage>;
type Offer = Choice<EngineEntry, ReadPassage>;

const MAX_LABEL = 80;
const MAX_PAYLOAD = 2048;

const labelOf = (words: string): string =>
  [...words].length > MAX_LABEL ? `${[...words].slice(0, MAX_LABEL - 1).join('')}…` : words;

const replyAction = (words: string): SuggestedAction => ({
  label: labelOf(words),
  type: 'reply',
  payload: words.slice(0, MAX_PAYLOAD),
});

/** The page of a passage, at its anchor. Null for a file. */
const addressOf = ({ url, anchor }: ReadPassage): string | null => {
  const page = url === null ? null : URL.parse(url);
  if (page && anchor) page.hash = anchor;
  return page && isSafeLink(page.href) ? page.href : null;
};

const linkAction = (words: string, payload: string): SuggestedAction => ({
  label: labelOf(words.trim() === '' ? payload : words),
  type: 'link',
  payload,
});

/** What replies are taken from. An engine that writes its own text names the passages that it used. */
export const sourceOf = ({ passage, quote }: { passage: ReadPassage; quote: string }): ReplySource => ({
  title: passage.title,
  url: addressOf(passage),
  quote,
});

/** Buttons to the pages of sources, each once. */
export const linkActions = (sources: ReplySource[]): SuggestedAction[] =>
  distinct(sources.flatMap(({ title, url }) => (url === null ? [] : [linkAction(title, url)])));

/** The button of an offer: the question of an entry, or the headings of a passage. */
const offerAction = ({ entry, passage }: Offer): SuggestedAction => {
  if (entry) return replyAction(entry.question);
  const { path, title } = passage;
  const address = addressOf(passage);
  if (address === null) return replyAction(path.length > 0 ? path.join(': ') : title);
  return linkAction(path.at(-1) ?? title, address);
};

/** Removes repeated buttons. Two passages may have the same heading. */
const distinct = (actions: SuggestedAction[]): SuggestedAction[] => [
  ...new Map(actions.map((action) => [`${action.type} ${action.payload}`, action])).values(),
];

const talkToPersonAction = (language: string): SuggestedAction => ({
  label: text(language, 'talkToPerson'),
  type: 'escalate',
  payload: 'user_requested',
});

/** The buttons of an answer: those of the entry, or the page of the passage. */
const ownActions = ({ entry, passage }: Offer): SuggestedAction[] => {
  if (entry) return entry.actions.slice(0, MAX_SUGGESTED_ACTIONS);
  const address = addressOf(passage);
  return address === null ? [] : [linkAction(passage.title, address)];
};

/**
 * The buttons of a hedged answer. Buttons that lead away from the answer come last. Its own buttons fill the other
 * places.
 */
const hedgedActions = (given: Offer, others: Offer[], language: string): SuggestedAction[] => {
  const own = ownActions(given);
  // The link to the page of a quoted passage is never left out.
  const first = given.passage ? own : [];
  const offered = distinct([...first, ...others.map(offerAction)]).slice(first.length, MAX_SUGGESTED_ACTIONS - 1);
  const away = [...offered, replyAction(text(language, 'notMeant'))];
  return [...own.slice(0, MAX_SUGGESTED_ACTIONS - away.length), ...away];
};

/** The texts and buttons of a decision. */
const wordingOf = (decision: Decision, language: string): Partial<EngineReply> & { text: string } => {
  switch (decision.kind) {
    case 'answer':
    case 'hedge': {
      const { entry, passage, confidence, isForeign } = decision;
      const lines = [
        ...(decision.kind === 'hedge' ? [text(language, 'hedge')] : []),
        ...(isForeign ? [otherLanguageText(language, decision.language)] : []),
        entry ? entry.answer : decision.quote,
      ];
      return {
        text: lines.join('\n'),
        suggestedActions:
          decision.kind === 'hedge' ? hedgedActions(decision, decision.others, language) : ownActions(decision),
        ...(passage && { sources: [sourceOf(decision)] }),
        confidence,
        language: decision.language,
      };
    }
    case 'askBack': {
      const { choices, confidence, isLongShot } = decision;
      return {
        text: text(language, 'askBack'),
        suggestedActions: [
          ...distinct(choices.map(offerAction)),
          ...(isLongShot ? [talkToPersonAction(language)] : []),
        ],
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

const ANSWERS = new Set<Decision['kind']>(['answer', 'hedge', 'askBack', 'unsure']);

/** The wording of a decision. Contact details that stand beside a question are noted too. */
const wordingFor = ({ message }: TurnContext, decision: Decision, language: string): ReturnType<typeof wordingOf> => {
  const wording = wordingOf(decision, language);
  if (!ANSWERS.has(decision.kind) || findContactDetails(message) === null) return wording;
  return { ...wording, text: `${text(language, 'contactNoted')}\n${wording.text}` };
};

type Searched = { index: KnowledgeIndex<EngineEntry> | null; passages: TurnPassages | null };

const toInquiry = (
  { assistant, message, messages, language, history, semanticSearch }: TurnContext,
  { index, passages }: Searched,
): Inquiry<EngineEntry, ReadPassage> => {
  const asked = messages ? joinMessages(messages, language) : message;
  return {
    message: asked,
    language,
    index,
    answering: assistant.answering ?? 'balanced',
    threshold: assistant.threshold,
    history,
    isRejection: isRejection(asked),
    semanticSearch,
    ...(passages && { passages: passages.search }),
  };
};

/** Stands for passages whose index is not there yet. */
const UNKNOWN: TurnPassages = {
  search: { index: new PassageIndex(), embed: async () => null, read: async () => [] },
  isOutdated: () => false,
};

/** Decides with the passages of one version. If a newer version has replaced some of them meanwhile, decides again. */
const decide = async (turn: TurnContext, index: Searched['index']): Promise<Decision> => {
  let passages = turn.passages?.current() ?? null;
  // A turn that the entries answer by their words does not wait for the passages.
  if (turn.passages && !passages && !(await inSlices(decidesByWords(toInquiry(turn, { index, passages: UNKNOWN }))))) {
    passages = await turn.passages.open();
  }
  const decision = await decideReply(toInquiry(turn, { index, passages }));
  if (!passages?.isOutdated()) return decision;
  const newer = (await turn.passages?.open(passages)) ?? null;
  return newer ? decideReply(toInquiry(turn, { index, passages: newer })) : decision;
};

/** The passage that the reply gives, for `why`. */
const givenIn = (decision: Decision) =>
  (decision.kind === 'answer' || decision.kind === 'hedge') && decision.passage
    ? { given: { passageId: decision.passage.passageId, sourceId: decision.passage.sourceId } }
    : {};

/**
 * Answers from the assistant's knowledge and sources: `@parley/understanding` decides, this engine indexes and words
 * the reply.
 */
export const createRetrievalEngine = (options: IndexOptions = {}): AssistantEngine => {
  const indexes = createIndexes(options);
  const hasKnowledge = ({ assistant }: TurnContext): boolean => assistant.knowledge.length > 0;

  return {
    name: 'retrieval',
    // While an index is built, turns wait in the slots for providers, of which one assistant cannot take all.
    needsProvider: (assistant) => assistant.knowledge.length > 0 && indexes.current(assistant) === undefined,
    atVersion: (assistant, mayWait) =>
      assistant.knowledge.length > 0 ? indexes.atVersion(assistant, mayWait) : assistant,
    answersImmediately: (turn) => {
      const index = hasKnowledge(turn) ? indexes.current(turn.assistant) : null;
      const passages = turn.passages?.current() ?? null;
      // Without the index of the entries or of the passages, the turn would wait for it.
      if (index === undefined || (turn.passages && !passages)) return false;
      const steps = decidesByWords(toInquiry(turn, { index, passages }));
      return workFor(turn.assistant.assistantId, () => inSlices(steps));
    },
    reply: async (turn) => {
      const { language } = turn;
      const index = hasKnowledge(turn) ? await indexes.of(turn) : null;
      const rest = restIfBusy();
      if (rest) await rest;
      const decision = await decide(turn, index);
      return {
        suggestedActions: [],
        confidence: 1,
        low: false,
        language,
        ...wordingFor(turn, decision, language),
        ...(decision.passages && { passages: decision.passages }),
        why: { engine: 'retrieval', ...decision.why, ...givenIn(decision) },
      };
    },
  };
};
