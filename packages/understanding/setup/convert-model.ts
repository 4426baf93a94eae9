import { mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  filesIn,
  findDamage,
  graphName,
  GROUP,
  GROUP_BYTES,
  halfToFloat,
  openWeights,
  type Weights,
} from '../src/embedder/model-files.ts';

// This program writes the model's graph beside its downloaded weights. The set-up and the image's build run it once. It
// needs no packages. With a second folder, it writes the model there as `SEMANTIC_MODEL` takes any model.

// ONNX is a protobuf message. Only the few fields that this graph needs are written here.

const FLOAT = 1;
const UINT8 = 2;
const INT8 = 3;
const INT64 = 7;
/** `AttributeProto.type` */
const AS = { float: 1, integer: 2, integers: 7 } as const;
const MICROSOFT = 'com.microsoft';

type Field = Buffer[];

const varint = (value: number): Buffer => {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  do {
    bytes.push(Number(rest & 127n) | (rest > 127n ? 128 : 0));
    rest >>= 7n;
  } while (rest > 0n);
  return Buffer.from(bytes);
};
const integer = (field: number, value: number): Field => [varint(field << 3), varint(value)];
const bytes = (field: number, value: Buffer | string): Field => {
  const content = typeof value === 'string' ? Buffer.from(value) : value;
  return [varint((field << 3) | 2), varint(content.length), content];
};
const message = (field: number, ...fields: Field[]): Field => bytes(field, Buffer.concat(fields.flat()));
const float = (field: number, value: number): Field => {
  const content = Buffer.alloc(4);
  content.writeFloatLE(value);
  return [varint((field << 3) | 5), content];
};

type Attribute = number | number[] | { float: number };
const attribute = (name: string, value: Attribute): Field => {
  const type = Array.isArray(value) ? AS.integers : typeof value === 'number' ? AS.integer : AS.float;
  const content = Array.isArray(value)
    ? value.flatMap((one) => integer(8, one))
    : typeof value === 'number'
      ? integer(3, value)
      : float(2, value.float);
  return message(5, bytes(1, name), content, integer(20, type));
};

const shaped = (field: number, name: string, shape: (number | string)[], type = FLOAT): Field => {
  const sizes = shape.map((size) => message(1, typeof size === 'number' ? integer(1, size) : bytes(2, size)));
  return message(field, bytes(1, name), message(2, message(1, integer(1, type), message(2, ...sizes))));
};

const createGraph = () => {
  const nodes: Field[] = [];
  const constants: Field[] = [];
  return {
    op: (
      type: string,
      inputs: string[],
      output: string,
      attributes: Record<string, Attribute> = {},
      domain = '',
    ): string => {
      const given = Object.entries(attributes).map(([name, value]) => attribute(name, value));
      nodes.push(
        message(
          1,
          ...inputs.map((input) => bytes(1, input)),
          bytes(2, output),
          bytes(4, type),
          ...given,
          bytes(7, domain),
        ),
      );
      return output;
    },
    constant: (name: string, dims: number[], values: Float32Array | Uint8Array | Int8Array | BigInt64Array): string => {
      const eight = values instanceof Int8Array ? INT8 : UINT8;
      const type = values instanceof Float32Array ? FLOAT : values instanceof BigInt64Array ? INT64 : eight;
      const raw = Buffer.from(values.buffer, values.byteOffset, values.byteLength);
      constants.push(
        message(5, ...dims.map((size) => integer(1, size)), integer(2, type), bytes(8, name), bytes(9, raw)),
      );
      return name;
    },
    write: (inputs: Field[], outputs: Field[]): Buffer => {
      const graph = message(7, ...nodes, bytes(2, 'e5'), ...constants, ...inputs, ...outputs);
      const operators = [['', 18] as const, [MICROSOFT, 1] as const];
      const imports = operators.map(([domain, version]) => message(8, bytes(1, domain), integer(2, version)));
      return Buffer.concat([integer(1, 9), graph, ...imports].flat());
    },
  };
};

/** Quantises a matrix to 8 bits, with a scale for each output, and transposes it: [inputs, outputs]. */
const quantised = (matrix: Float32Array, outputs: number, inputs: number) => {
  const weights = new Int8Array(matrix.length);
  const scales = new Float32Array(outputs);
  for (let output = 0; output < outputs; output += 1) {
    let largest = 1e-9;
    for (let input = 0; input < inputs; input += 1) {
      largest = Math.max(largest, Math.abs(matrix[output * inputs + input] as number));
    }
    const scale = largest / 127;
    scales[output] = scale;
    for (let input = 0; input < inputs; input += 1) {
      weights[input * outputs + output] = Math.round((matrix[output * inputs + input] as number) / scale);
    }
  }
  return { weights, scales };
};

/** The number of an unsigned weight that stands for zero. */
const ZERO = 128;
const unsigned = (weights: Int8Array): Uint8Array => Uint8Array.from(weights, (weight) => weight + ZERO);

/** The vectors of words as `GatherBlockQuantized` reads them: two neighbours in a byte, and the scales apart. */
const packedWords = ({ packed, words, hidden }: Weights) => {
  const groups = packed('emb.word');
  const count = (words * hidden) / GROUP;
  const pairs = new Uint8Array((count * GROUP) / 2);
  const scales = new Float32Array(count);
  for (let group = 0; group < count; group += 1) {
    const from = group * GROUP_BYTES;
    scales[group] = halfToFloat(groups.readUInt16LE(from));
    for (let nth = 0; nth < GROUP; nth += 2) {
      const shift = nth < GROUP / 2 ? 0 : 4;
      const at = from + 2 + (nth % (GROUP / 2));
      const [one, other] = [groups[at] as number, groups[at + 1] as number];
      pairs[(group * GROUP + nth) / 2] = ((one >> shift) & 15) | (((other >> shift) & 15) << 4);
    }
  }
  return { pairs, scales };
};

/**
 * The model as an ONNX graph with weights of 8 bits, signed or not: `graphNameFor` says why there are both. It maps the sum of word, position and type vectors of a
 * text, `x` [tokens, hidden], to `vector` [hidden], of length 1, and to `states` [tokens, hidden], the last layer's.
 */
const writeGraph = (weights: Weights, isSigned: boolean, isWhole = false): Buffer => {
  const { hidden, layers, heads, inner, epsilon, matrix, vector } = weights;
  const graph = createGraph();
  const { op, constant } = graph;
  const numbers = (name: string, values: number[]) =>
    constant(name, [values.length], BigInt64Array.from(values, BigInt));
  const fromFile = (name: string): string => constant(name, [hidden], vector(name));
  const linear = (input: string, name: string, outputs: number, inputs: number): string => {
    const { weights: eight, scales } = quantised(matrix(`${name}.w`, outputs, inputs), outputs, inputs);
    const given = [
      constant(`${name}.w`, [inputs, outputs], isSigned ? eight : unsigned(eight)),
      constant(`${name}.scale`, [outputs], scales),
      isSigned ? '' : constant(`${name}.zero`, [outputs], new Uint8Array(outputs).fill(ZERO)),
      constant(`${name}.b`, [outputs], vector(`${name}.b`)),
    ];
    return op('DynamicQuantizeMatMul', [input, ...given], name, {}, MICROSOFT);
  };
  const normal = (input: string, name: string): string =>
    op('LayerNormalization', [input, fromFile(`${name}.w`), fromFile(`${name}.b`)], name, {
      axis: -1,
      epsilon: { float: epsilon },
    });

  numbers('by head', [0, heads, hidden / heads]);
  numbers('flat', [0, hidden]);
  numbers('first axis', [0]);
  constant('scale', [], Float32Array.of(1 / Math.sqrt(hidden / heads)));

  /** The vectors of words, from the ids of a text's tokens: the weights stay in 4 bits. */
  const embedded = (): string => {
    const { pairs, scales } = packedWords(weights);
    const { positions, words } = weights;
    constant('words', [words, hidden / 2], pairs);
    constant('words.scales', [words, hidden / GROUP], scales);
    numbers('all', [-1]);
    const ids = op('Reshape', ['input_ids', 'all'], 'ids');
    const blocks = { bits: 4, block_size: GROUP, gather_axis: 0, quantize_axis: 1 };
    const found = op('GatherBlockQuantized', ['words', ids, 'words.scales'], 'found', blocks, MICROSOFT);
    constant('positions', [positions, hidden], vector('emb.pos'));
    const places = op('Slice', ['positions', 'first axis', op('Shape', [ids], 'count')], 'places');
    constant('type', [hidden], vector('emb.type').subarray(0, hidden));
    return op('Add', [op('Add', [found, places], 'placed'), 'type'], 'x');
  };

  let x = normal(isWhole ? embedded() : 'x', 'emb.ln');
  for (let layer = 0; layer < layers; layer += 1) {
    const at = (part: string): string => `l${layer}.${part}`;
    const byHead = (part: string, perm: number[]): string => {
      const split = op('Reshape', [linear(x, at(part), hidden, hidden), 'by head'], at(`${part} by head`));
      return op('Transpose', [split], at(`${part} turned`), { perm });
    };
    const scores = op('MatMul', [byHead('q', [1, 0, 2]), byHead('k', [1, 2, 0])], at('scores'));
    const attention = op('Softmax', [op('Mul', [scores, 'scale'], at('scaled'))], at('attention'), { axis: -1 });
    const mixed = op('MatMul', [attention, byHead('v', [1, 0, 2])], at('mixed'));
    const flat = op('Reshape', [op('Transpose', [mixed], at('unturned'), { perm: [1, 0, 2] }), 'flat'], at('flat'));
    const attended = op('Add', [x, linear(flat, at('ao'), hidden, hidden)], at('attended'));
    x = normal(attended, at('aln'));
    const wide = op('Gelu', [linear(x, at('fi'), inner, hidden)], at('gelu'), {}, MICROSOFT);
    const narrow = op('Add', [x, linear(wide, at('fo'), hidden, inner)], at('narrow'));
    x = normal(narrow, at('oln'));
  }
  if (isWhole) {
    op('Unsqueeze', [x, 'first axis'], 'last_hidden_state');
    const inputs = ['input_ids', 'attention_mask', 'token_type_ids'];
    return graph.write(
      inputs.map((name) => shaped(11, name, ['batch', 'tokens'], INT64)),
      [shaped(12, 'last_hidden_state', ['batch', 'tokens', hidden])],
    );
  }
  op('Identity', [x], 'states');
  const pooled = op('ReduceMean', [x, 'first axis'], 'mean', { keepdims: 0 });
  op('LpNormalization', [pooled], 'vector', { axis: -1, p: 2 });
  return graph.write(
    [shaped(11, 'x', ['tokens', hidden])],
    [shaped(12, 'vector', [hidden]), shaped(12, 'states', ['tokens', hidden])],
  );
};

/** The model's own tokenizer as other programs read it. Runs of spaces are one, as `WhitespaceSplit` has it. */
const writtenTokenizer = ({ vocabulary: { begin, end, unknown, pieces, offsets, scores, texts } }: Weights) => {
  const decoder = new TextDecoder();
  const vocab = Array.from({ length: pieces }, (_, id): [string, number] => [
    decoder.decode(texts.subarray(offsets[id], offsets[id + 1])),
    scores[id] as number,
  ]);
  const [first = '', last = ''] = [begin, end].map((id) => vocab[id]?.[0]);
  const special = [begin, end, unknown].map((id) => ({ id, content: vocab[id]?.[0], special: true }));
  const mark = (id: string) => ({ SpecialToken: { id, type_id: 0 } });
  return {
    added_tokens: special,
    normalizer: { type: 'Precompiled', precompiled_charsmap: '' },
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [{ type: 'WhitespaceSplit' }, { type: 'Metaspace', replacement: '▁', add_prefix_space: true }],
    },
    post_processor: {
      type: 'TemplateProcessing',
      single: [mark(first), { Sequence: { id: 'A', type_id: 0 } }, mark(last)],
      special_tokens: Object.fromEntries(
        [first, last].map((id, nth) => [id, { id, ids: [nth === 0 ? begin : end], tokens: [id] }]),
      ),
    },
    decoder: null,
    model: { type: 'Unigram', unk_id: unknown, vocab },
  };
};

const writeFolder = (weights: Weights, to: string): void => {
  const write = (name: string, content: object): void =>
    writeFileSync(join(to, name), Buffer.isBuffer(content) ? content : JSON.stringify(content));
  mkdirSync(join(to, '1_Pooling'), { recursive: true });
  mkdirSync(join(to, 'onnx'), { recursive: true });
  write('onnx/model.onnx', writeGraph(weights, false, true));
  write('tokenizer.json', writtenTokenizer(weights));
  write('tokenizer_config.json', { tokenizer_class: 'XLMRobertaTokenizer', model_max_length: weights.positions });
  write('config.json', { _name_or_path: 'multilingual-e5-small', model_type: 'bert', hidden_size: weights.hidden });
  write('1_Pooling/config.json', { word_embedding_dimension: weights.hidden, pooling_mode_mean_tokens: true });
  write('config_sentence_transformers.json', { prompts: { query: 'query: ', passage: 'passage: ' } });
};

const [folder = '', to] = process.argv.slice(2);
const opened = openWeights(filesIn(folder).weights);
if (to === undefined) {
  for (const isSigned of [true, false]) {
    const graph = join(folder, graphName(isSigned));
    writeFileSync(`${graph}.${process.pid}`, writeGraph(opened, isSigned));
    renameSync(`${graph}.${process.pid}`, graph); // appears whole or not at all
    const damage = await findDamage(folder, graphName(isSigned));
    if (damage !== null) throw new Error(damage);
  }
} else writeFolder(opened, to);
opened.close();
