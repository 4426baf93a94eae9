import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { filesIn, findDamage, graphName, openWeights, type Weights } from '../src/embedder/model-files.ts';

// This program writes the model's graph beside its downloaded weights. The set-up and the image's build run it once. It
// needs no packages.

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

const shaped = (field: number, name: string, shape: (number | string)[]): Field => {
  const sizes = shape.map((size) => message(1, typeof size === 'number' ? integer(1, size) : bytes(2, size)));
  return message(field, bytes(1, name), message(2, message(1, integer(1, FLOAT), message(2, ...sizes))));
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

/**
 * The model as an ONNX graph with weights of 8 bits, signed or not: `graphNameFor` says why there are both. It maps the sum of word, position and type vectors of a
 * text, `x` [tokens, hidden], to `vector` [hidden], of length 1, and to `states` [tokens, hidden], the last layer's.
 */
const writeGraph = (weights: Weights, isSigned: boolean): Buffer => {
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

  let x = normal('x', 'emb.ln');
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
  op('Identity', [x], 'states');
  const pooled = op('ReduceMean', [x, 'first axis'], 'mean', { keepdims: 0 });
  op('LpNormalization', [pooled], 'vector', { axis: -1, p: 2 });
  return graph.write(
    [shaped(11, 'x', ['tokens', hidden])],
    [shaped(12, 'vector', [hidden]), shaped(12, 'states', ['tokens', hidden])],
  );
};

const folder = process.argv[2] ?? '';
const opened = openWeights(filesIn(folder).weights);
for (const isSigned of [true, false]) {
  const graph = join(folder, graphName(isSigned));
  writeFileSync(`${graph}.${process.pid}`, writeGraph(opened, isSigned));
  renameSync(`${graph}.${process.pid}`, graph); // appears whole or not at all
  const damage = await findDamage(folder, graphName(isSigned));
  if (damage !== null) throw new Error(damage);
}
opened.close();
