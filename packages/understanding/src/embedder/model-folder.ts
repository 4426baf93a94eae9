import { createHash } from 'node:crypto';
import { createReadStream, existsSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import * as z from 'zod';
import { CALIBRATION_NAME, ModelCalibration } from '../calibration.ts';
import { type EmbeddedKind, ModelError } from './backend.ts';
import { type GraphOutput, SESSION } from './model-files.ts';
import { PROJECTION_NAME, tokenKindOf } from './token-vectors.ts';

// Any sentence-embedding model in a folder, as model hubs lay it out for sentence-transformers: its graph in ONNX, its own
// tokenizer, and files that say how a text becomes a vector. So there is nothing to set but the folder.

/** Bounds of what is read whole, and of all. A vocabulary of 250,000 pieces takes 17 MB. */
const SETTINGS_MAX_BYTES = 1_000_000;
const TOKENIZER_MAX_BYTES = 64_000_000;
const GRAPH_MAX_BYTES = 4_000_000_000;
/** The first that is there is used. */
const GRAPHS = ['onnx/model.onnx', 'model.onnx', 'onnx/model_quantized.onnx', 'model_quantized.onnx'];
/** Graphs beyond 2 GB keep their weights in another file. */
const WEIGHTS_BESIDE = ['_data', '.data'];
/** More tokens than a piece of a text has. */
const MOST_TOKENS = 512;
const MOST_DIMENSIONS = 4_096;
/** The graph's output with a vector for each token, and the one with the vector of the text. */
const STATES = ['last_hidden_state', 'token_embeddings'];
const WHOLE = ['sentence_embedding'];
const STEPS = ['Transformer', 'Pooling', 'Normalize'];

const Tokenizer = z.looseObject({ model: z.looseObject({}) });
const Settings = z.looseObject({ model_max_length: z.number().optional() });
const Limits = z.looseObject({ max_seq_length: z.number().nullish() });
const Prompts = z.looseObject({ prompts: z.record(z.string(), z.string().max(2_000)).nullish() });
const Modules = z.array(z.looseObject({ type: z.string() }));
const Shape = z.looseObject({
  _name_or_path: z.string().optional(),
  model_type: z.string().optional(),
  max_position_embeddings: z.number().optional(),
});
const Pooling = z.looseObject({
  pooling_mode: z.string().optional(),
  pooling_mode_cls_token: z.boolean().optional(),
  pooling_mode_mean_tokens: z.boolean().optional(),
  word_embedding_dimension: z.int().optional(),
  embedding_dimension: z.int().optional(),
});

const sizeOf = (folder: string, name: string, most: number): number => {
  let bytes = 0;
  try {
    bytes = statSync(join(folder, name)).size;
  } catch (cause) {
    throw new ModelError(`${name} cannot be read (${(cause as NodeJS.ErrnoException).code ?? 'no reason given'})`);
  }
  if (bytes > most) throw new ModelError(`${name} is too large: ${bytes} bytes, at most ${most}`);
  return bytes;
};

const readJson = <Read>(folder: string, name: string, schema: z.ZodType<Read>, most = SETTINGS_MAX_BYTES): Read => {
  sizeOf(folder, name, most);
  let json: unknown;
  try {
    json = JSON.parse(readFileSync(join(folder, name), 'utf8'));
  } catch {
    throw new ModelError(`${name} is not JSON`);
  }
  const { data, success } = schema.safeParse(json);
  if (!success) throw new ModelError(`${name} has another shape than that of such models`);
  return data;
};

const readIfThere = <Read>(folder: string, name: string, schema: z.ZodType<Read>): Read | null =>
  existsSync(join(folder, name)) ? readJson(folder, name, schema) : null;

type Pooled = 'mean' | 'cls';

/** How the vectors of tokens become one. Null: nothing says it. */
const readPooling = (folder: string): { by: Pooled; dimensions: number | undefined } | null => {
  const name = '1_Pooling/config.json';
  const own = readIfThere(folder, name, Pooling);
  if (!own) return null;
  const dimensions = own.word_embedding_dimension ?? own.embedding_dimension;
  const modes = Object.entries(own).filter(([key, value]) => key.startsWith('pooling_mode_') && value === true);
  const said = own.pooling_mode ?? (modes.length === 1 ? modes[0]?.[0] : modes.map(([key]) => key).join(', '));
  if (said === 'mean' || said === 'pooling_mode_mean_tokens') return { by: 'mean', dimensions };
  if (said === 'cls' || said === 'pooling_mode_cls_token') return { by: 'cls', dimensions };
  throw new ModelError(`${name} asks for another pooling than mean or cls: ${said || 'none'}`);
};

/** What stands before a question and before a passage. */
const readPrefixes = (folder: string): Record<EmbeddedKind, string> => {
  const { prompts } = readIfThere(folder, 'config_sentence_transformers.json', Prompts) ?? {};
  return { query: prompts?.['query'] ?? '', passage: prompts?.['passage'] ?? prompts?.['document'] ?? '' };
};

const readMostTokens = (
  folder: string,
  settings: z.infer<typeof Settings>,
  shape: z.infer<typeof Shape> | null,
): number => {
  const limits = readIfThere(folder, 'sentence_bert_config.json', Limits);
  // These count their positions from 2.
  const unused = /roberta|camembert/.test(shape?.model_type ?? '') ? 2 : 0;
  const positions = (shape?.max_position_embeddings ?? MOST_TOKENS + unused) - unused;
  const most = Math.min(MOST_TOKENS, settings.model_max_length ?? MOST_TOKENS, limits?.max_seq_length ?? MOST_TOKENS);
  return Math.max(8, Math.min(most, positions));
};

/** Reads what says how a text becomes a vector. Throws a `ModelError` that names the file that is missing or wrong. */
const readFolder = (folder: string) => {
  const graph = GRAPHS.find((name) => existsSync(join(folder, name)));
  if (graph === undefined) throw new ModelError(`SEMANTIC_MODEL has no graph: none of ${GRAPHS.join(', ')}`);
  const beside = WEIGHTS_BESIDE.map((ending) => `${graph}${ending}`).filter((name) => existsSync(join(folder, name)));
  const files = [graph, ...beside];
  files.reduce((left, name) => left - sizeOf(folder, name, left), GRAPH_MAX_BYTES);
  const step = readIfThere(folder, 'modules.json', Modules)?.find(
    ({ type }) => !STEPS.includes(type.split('.').at(-1) ?? ''),
  );
  if (step) throw new ModelError(`modules.json has a step that is not supported: ${step.type.slice(0, 100)}`);
  const settings = readIfThere(folder, 'tokenizer_config.json', Settings) ?? {};
  const shape = readIfThere(folder, 'config.json', Shape);
  return {
    graph,
    files,
    settings,
    tokenizer: readJson(folder, 'tokenizer.json', Tokenizer, TOKENIZER_MAX_BYTES),
    pooling: readPooling(folder),
    prefixes: readPrefixes(folder),
    mostTokens: readMostTokens(folder, settings, shape),
    name: basename(shape?._name_or_path ?? '') || (shape?.model_type ?? 'model'),
  };
};

type Folder = ReturnType<typeof readFolder>;

/** The name of the model says what it is made of, so that vectors of another one are never compared with its own. Where the folder is does not matter. */
const nameOf = async (
  folder: string,
  { name, files, settings, pooling, prefixes, mostTokens }: Folder,
): Promise<string> => {
  const hash = createHash('sha256').update(JSON.stringify([settings, pooling, prefixes, mostTokens]));
  for (const file of [...files, 'tokenizer.json']) {
    await pipeline(createReadStream(join(folder, file), { highWaterMark: 2 ** 18 }), async (chunks) => {
      for await (const chunk of chunks as AsyncIterable<Buffer>) hash.update(chunk);
    });
  }
  return `${name.slice(0, 80).replaceAll(/[^\w.-]/g, '-')}@${hash.digest('hex').slice(0, 12)}`;
};

/** The ids of a text, and where its own begin and end: marks of the model and the prefix are around them. */
const openTokenizer = async ({ tokenizer, settings, prefixes, mostTokens }: Folder) => {
  // Not imported above, because only folders of this kind need it.
  const { Tokenizer: OwnTokenizer } = await import('@huggingface/tokenizers');
  let own: InstanceType<typeof OwnTokenizer>;
  try {
    own = new OwnTokenizer(tokenizer, settings);
    own.encode('a');
  } catch (cause) {
    throw new ModelError(`tokenizer.json cannot be used: ${(cause as Error).message.slice(0, 100)}`);
  }
  const idsOf = (text: string, marks: boolean): number[] => own.encode(text, { add_special_tokens: marks }).ids;
  const [bare, whole] = [idsOf('a', false), idsOf('a', true)];
  const before = whole.findIndex((_, at) => bare.every((id, nth) => whole[at + nth] === id));
  const after = whole.length - bare.length - before;
  const from = {
    query: before + idsOf(prefixes.query.trimEnd(), false).length,
    passage: before + idsOf(prefixes.passage.trimEnd(), false).length,
  };
  return (text: string, kind: EmbeddedKind) => {
    const all = idsOf(`${prefixes[kind]}${text}`, true);
    const ids =
      all.length <= mostTokens ? all : [...all.slice(0, mostTokens - after), ...all.slice(all.length - after)];
    return { ids, from: from[kind], to: ids.length - after };
  };
};

const pooledFrom = (states: Float32Array, dimensions: number, by: Pooled): Float32Array<ArrayBuffer> => {
  const vector = new Float32Array(states.subarray(0, dimensions));
  if (by === 'cls') return vector;
  for (let at = dimensions; at < states.length; at += 1) {
    vector[at % dimensions] = (vector[at % dimensions] as number) + (states[at] as number);
  }
  return vector; // a sum has the direction of the mean
};

/** The file of the projection of the model's tokens. `npm run eval -- calibrate` writes it. */
export const projectionIn = (folder: string): string => join(folder, PROJECTION_NAME);

/** What fits the decision to the model. Without it, confidences would mean nothing, so the model is not used. */
export const readCalibration = (folder: string, model: string): ModelCalibration => {
  const again = 'run `npm run eval -- calibrate` with this SEMANTIC_MODEL';
  if (!existsSync(join(folder, CALIBRATION_NAME)))
    throw new ModelError(`${CALIBRATION_NAME} is missing: ${again}, which fits the decision to the model`);
  const { data, success } = ModelCalibration.safeParse(readJson(folder, CALIBRATION_NAME, z.unknown()));
  if (!success) throw new ModelError(`${CALIBRATION_NAME} was written by another version: ${again}`);
  if (data.model !== model) throw new ModelError(`${CALIBRATION_NAME} was fitted to other files: ${again}`);
  return data;
};

/**
 * Opens the model of a folder in this process. Throws a `ModelError` that says what is wrong. Only the model process and
 * the evaluation call it, as `openSession`.
 */
export const openModelFolder = async (folder: string) => {
  const read = readFolder(folder);
  const tokensOf = await openTokenizer(read);
  const model = await nameOf(folder, read);
  const { InferenceSession, Tensor } = await import('onnxruntime-node');
  const session = await InferenceSession.create(join(folder, read.graph), SESSION);
  const states = STATES.find((name) => session.outputNames.includes(name));
  const whole = WHOLE.find((name) => session.outputNames.includes(name));
  const { pooling } = read;
  if (states !== undefined && !pooling && whole === undefined)
    throw new ModelError('1_Pooling/config.json is missing: nothing says how the vectors of tokens become one');
  const output = pooling ? states : (whole ?? states);
  if (output === undefined)
    throw new ModelError(
      `the graph gives none of ${[...STATES, ...WHOLE].join(', ')} that the folder tells how to use`,
    );

  const inputOf = (name: string, ids: number[]): InstanceType<typeof Tensor> => {
    const values =
      name === 'input_ids'
        ? ids
        : ids.map((_, at) => ({ attention_mask: 1, position_ids: at, token_type_ids: 0 })[name]);
    if (values.includes(undefined)) throw new ModelError(`the graph has an input that is not known: ${name}`);
    return new Tensor('int64', BigInt64Array.from(values as number[], BigInt), [1, ids.length]);
  };
  const run = async (text: string, kind: EmbeddedKind, withStates: boolean): Promise<GraphOutput> => {
    const { ids, from, to } = tokensOf(text, kind);
    const inputs = Object.fromEntries(session.inputNames.map((name) => [name, inputOf(name, ids)]));
    const asked = withStates && states !== undefined ? [...new Set([output, states])] : [output];
    const made = await session.run(inputs, asked);
    const given = made[output];
    const dimensions = given?.dims.at(-1) ?? 0;
    if (!given || given.type !== 'float32') throw new ModelError(`the graph gives ${output} not as 32-bit floats`);
    const data = given.data as Float32Array;
    const isAll = output === states;
    if (data.length !== dimensions * (isAll ? ids.length : 1))
      throw new ModelError(`the graph gives ${output} in another shape: ${given.dims.join(' × ')}`);
    return {
      vector: isAll && pooling ? pooledFrom(data, dimensions, pooling.by) : Float32Array.from(data),
      states: withStates && states !== undefined ? (made[states]?.data as Float32Array) : null,
      from,
      to,
    };
  };

  const { vector } = await run('a', 'query', false);
  const expected = pooling?.dimensions;
  if (expected !== undefined && vector.length !== expected)
    throw new ModelError(`the graph gives ${vector.length} dimensions, but 1_Pooling/config.json says ${expected}`);
  if (vector.length % 4 !== 0 || vector.length > MOST_DIMENSIONS)
    throw new ModelError(`${vector.length} dimensions are not supported: a multiple of 4, at most ${MOST_DIMENSIONS}`);
  const hasProjection = states !== undefined && existsSync(projectionIn(folder));
  return {
    model,
    run,
    dimensions: vector.length,
    tokenKind: hasProjection ? tokenKindOf(model, projectionIn(folder)) : null,
  };
};
