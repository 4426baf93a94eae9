import type { Assistant } from './assistant.ts';
import type { TextKind } from './knowledge-texts.ts';
import type { AssistantStore } from './store.ts';

/** The state of an assistant's semantic search, for operators. */
export type SemanticStatus = {
  state: 'ready' | 'making' | 'off';
  /** Why semantic search is off. Null in the other states. */
  reason: string | null;
  model: string | null;
  /** Entries with vectors. */
  done: number;
  total: number;
  /** Texts that are not searched by words, because the knowledge exceeds a worker's memory. */
  leftOut: number;
  /** Kinds of texts whose vectors are not used, because they exceed a worker's memory. */
  vectorsLeftOut: TextKind[];
};

const isReady = ({ version, semantic }: Assistant, total: number): boolean =>
  semantic?.stale !== true || (semantic.version === version && (semantic.done ?? 0) >= total);

export const findSemanticStatus = async (assistants: AssistantStore, assistantId: string): Promise<SemanticStatus> => {
  const [assistant, live, total] = await Promise.all([
    assistants.getAssistant(assistantId),
    assistants.embedders.listRunning(),
    assistants.countKnowledge(assistantId),
  ]);
  const { semantic, leftOut = 0, vectorsLeftOut = [] } = assistant;
  const held = { leftOut, vectorsLeftOut };
  const usable = live.filter(({ available, model }) => available && model !== null);
  const serving = usable.find(({ model }) => model === semantic?.model) ?? usable[0];
  if (!serving) {
    const reason = live[0]?.detail ?? 'no reply worker is running';
    return { state: 'off', reason, model: null, done: 0, total, ...held };
  }
  const begun = serving.model === semantic?.model;
  const done = begun ? Math.min(semantic?.done ?? 0, total) : 0;
  const state = begun && isReady(assistant, total) ? 'ready' : 'making';
  return { state, reason: null, model: serving.model, done: state === 'ready' ? total : done, total, ...held };
};

const grouped = new Intl.NumberFormat('en');

const describeSearch = ({ state, reason, done, total }: SemanticStatus): string => {
  if (state === 'off') return `Semantic search is off: ${reason}`;
  if (state === 'ready') return 'Semantic search: ready';
  return `Semantic search: ${grouped.format(done)} of ${grouped.format(total)} entries ready`;
};

/** Describes the state in a sentence for operators, and what exceeds the memory in another. */
export const describeSemanticStatus = (status: SemanticStatus): string =>
  [
    describeSearch(status),
    ...(status.leftOut > 0 ? [`${grouped.format(status.leftOut)} texts are too many to be searched by words`] : []),
    ...(status.vectorsLeftOut.length > 0 ? [`too many vectors, unused: ${status.vectorsLeftOut.join(', ')}`] : []),
  ].join('; ');
