import { expect } from 'vitest';
import type { KnowledgeInput } from '../../src/assistants/knowledge/entry.ts';
import { findSemanticStatus, type SemanticStatus } from '../../src/assistants/knowledge/semantic-state.ts';
import { anAssistant, anEntry } from './builders.ts';
import { vectorOf } from './embedder.ts';
import { eventually } from './eventually.ts';
import type { Stack } from './stack.ts';

type Row = { _id: string; live: boolean; model: string; texts: string[]; vectors: { buffer: Buffer } };
type TextVector = { kind: string; vector: number[] };

/** Entries with distinct questions, variants and answers. */
export const someEntries = (count: number, word = 'thing'): KnowledgeInput[] =>
  Array.from({ length: count }, (_, nth) =>
    anEntry({
      question: `Where is the ${word} number ${nth}?`,
      variants: [`I look for ${word} ${nth}`],
      answer: `The ${word} ${nth} is on its shelf.`,
    }),
  );

const roundedOf = (vector: Iterable<number>): number[] => [...vector].map((value) => Math.round(value * 1e5) / 1e5);

/** The vectors that must be stored for an entry. */
export const expectedOf = ({ question, variants, answer }: KnowledgeInput): TextVector[] =>
  [
    { kind: 'question', text: question },
    ...variants.map((text) => ({ kind: 'variant', text })),
    { kind: 'answer', text: `${question} ${answer}` },
  ].map(({ kind, text }) => ({ kind, vector: roundedOf(vectorOf(text)) }));

/** An assistant and its stored vectors. */
export const anAssistantWithVectors = async (stack: Stack, knowledge: KnowledgeInput[]) => {
  const { assistantId } = await anAssistant(stack, { knowledge });
  const { assistants, mongo } = stack.service;
  const readRows = (): Promise<Row[]> =>
    mongo.collection<Row>('knowledgeVectors').find({ assistantId, live: true }).sort({ _id: 1 }).toArray();
  const textVectorsOf = ({ texts, vectors: { buffer } }: Row): TextVector[] => {
    const all = new Float32Array(Uint8Array.from(buffer).buffer);
    const length = all.length / texts.length;
    return texts.map((name, nth) => ({
      kind: name.split(' ')[0] ?? '',
      vector: roundedOf(all.subarray(nth * length, (nth + 1) * length)),
    }));
  };
  const status = (): Promise<SemanticStatus> => findSemanticStatus(assistants, assistantId);
  const semantic = async () => (await assistants.getAssistant(assistantId)).semantic;
  return {
    assistantId,
    readRows,
    status,
    semantic,
    entries: () => assistants.listKnowledge(assistantId),
    /** Waits until all vectors are made, and returns them by entry. */
    waitForVectors: async (timeoutMs?: number): Promise<Map<string, TextVector[]>> => {
      await eventually(async () => {
        const { stale, lease } = (await semantic()) ?? {};
        expect({ ...(await status()), stale, lease }).toMatchObject({
          state: 'ready',
          stale: undefined,
          lease: undefined,
        });
      }, timeoutMs);
      return new Map((await readRows()).map((row) => [row._id, textVectorsOf(row)]));
    },
    /** The vectors that the current entries must have. */
    expected: async (): Promise<Map<string, TextVector[]>> => {
      const entries = await assistants.listKnowledge(assistantId);
      const pairs = entries.map((entry): [string, TextVector[]] => [entry.entryId, expectedOf(entry)]);
      return new Map(pairs.toSorted(([one], [other]) => (one < other ? -1 : 1)));
    },
  };
};
