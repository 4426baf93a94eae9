import { createTokenizer, filesIn, findDamage, openWeights } from './model-files.ts';
import type { ModelMessage, ModelRequest } from './model-process.ts';

/**
 * The process that runs the local model, started by `model-process.ts`. onnxruntime is native code and blocks the event
 * loop while it runs. Here a crash loses a vector, but never a worker. The process runs until its parent disconnects or
 * kills it.
 */

const send = (message: ModelMessage): void => void process.send?.(message);

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

const openModel = async (folder: string) => {
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

  return async (text: string, isQuery: boolean): Promise<Float32Array<ArrayBuffer>> => {
    const ids = tokensOf(`${isQuery ? 'query' : 'passage'}: ${text}`);
    const x = new Tensor('float32', inputOf(ids), [ids.length, weights.hidden]);
    const { vector } = await session.run({ x }, ['vector']);
    if (!vector) throw new Error('the graph gives no vector');
    return Float32Array.from(vector.data as Float32Array);
  };
};

const main = async (folder: string): Promise<void> => {
  const damage = await findDamage(folder);
  if (damage !== null) return send({ type: 'unusable', reason: damage });
  let embed: Awaited<ReturnType<typeof openModel>>;
  try {
    embed = await openModel(folder);
  } catch (cause) {
    const [reason = ''] = (cause as Error).message.split('\n');
    return send({ type: 'unusable', reason: `the model does not run here: ${reason}` });
  }
  process.on('message', ({ id, text, isQuery }: ModelRequest) => {
    embed(text, isQuery).then(
      (vector) => send({ type: 'vector', id, vector }),
      () => send({ type: 'failed', id }),
    );
  });
  send({ type: 'ready' });
};

// SIGKILL is used, because nothing here needs an orderly end, and native code must not delay it.
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
// These signals are ignored: Ctrl-C reaches the whole process group, but the worker first finishes its turns and may
// need vectors for them.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined);
await main(process.argv[2] ?? '');
