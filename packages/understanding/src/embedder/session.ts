import { createTokenizer, filesIn, openWeights } from './model-files.ts';

/** What the graph gives for a text. The tokens from `from` to `to` are its own: the others begin and end every text. */
export type GraphOutput = { vector: Float32Array<ArrayBuffer>; states: Float32Array | null; from: number; to: number };

/** The sum of the vectors of a text's words, their positions and the one token type: what the graph reads. */
const createInput = ({ hidden, positions, readWord, vector }: ReturnType<typeof openWeights>) => {
  const places = vector('emb.pos');
  const type = vector('emb.type');
  for (let at = 0; at < positions * hidden; at += 1) {
    places[at] = (places[at] as number) + (type[at % hidden] as number);
  }
  return (ids: number[]): Float32Array => {
    const rows = new Float32Array(ids.length * hidden);
    ids.forEach((id, nth) => readWord(id, rows.subarray(nth * hidden, (nth + 1) * hidden)));
    for (let at = 0; at < rows.length; at += 1) rows[at] = (rows[at] as number) + (places[at] as number);
    return rows;
  };
};

/**
 * Opens the local model in this process. It is native code, which blocks the event loop while it runs: only the model
 * process and the evaluation call it.
 */
export const openSession = async (folder: string) => {
  // Not imported above, because on some systems the import fails, and the parent should learn why.
  const { InferenceSession, Tensor } = await import('onnxruntime-node');
  const files = filesIn(folder);
  const weights = openWeights(files.weights);
  const tokensOf = createTokenizer(weights);
  const inputOf = createInput(weights);
  const session = await InferenceSession.create(files.graph, {
    intraOpNumThreads: 1, // the other processors stay free for the event loops
    interOpNumThreads: 1,
    executionMode: 'sequential',
    graphOptimizationLevel: 'all',
    enableCpuMemArena: false, // it would keep the memory of the longest text
    enableMemPattern: false,
  });
  const lengthOf = (prefix: string): number => tokensOf(`${prefix}:`).length - 1;
  const from = { query: lengthOf('query'), passage: lengthOf('passage') };

  return async (text: string, kind: 'query' | 'passage', withStates: boolean): Promise<GraphOutput> => {
    const ids = tokensOf(`${kind}: ${text}`);
    const x = new Tensor('float32', inputOf(ids), [ids.length, weights.hidden]);
    const { vector, states } = await session.run({ x }, withStates ? ['vector', 'states'] : ['vector']);
    if (!vector) throw new Error('the graph gives no vector');
    return {
      vector: Float32Array.from(vector.data as Float32Array),
      states: states ? (states.data as Float32Array) : null,
      from: from[kind],
      to: ids.length - 1,
    };
  };
};
