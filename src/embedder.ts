import { createHash } from 'node:crypto';
import { availableParallelism } from 'node:os';
import {
  type CountEmbedding,
  type Embedder,
  localModel,
  type ModelBackend,
  ModelError,
  normalised,
  openEmbedder,
  type SharedVectors,
  type OpenModel,
  TextsRefused,
  unavailableEmbedder,
} from '@parley/understanding';
import { type Dispatcher, request } from 'undici';
import * as z from 'zod';
import type { Config } from './platform/process/config.ts';
import { withDeadline } from './platform/process/deadline.ts';
import type { RedisClient } from './platform/redis/redis.ts';
import type { Lifecycle } from './platform/process/lifecycle.ts';
import type { Logger } from './platform/process/logger.ts';
import { forEachJsonMark, JSON_MARKS, withoutSlashes } from './platform/process/validation.ts';
import { checkEndpointUrl, openGuardedAgent } from './platform/http/address-guard.ts';

const ANSWER_MS = 5_000;
const MAX_BYTES = 2_000_000;
/** A request has few texts, so that parsing the answer does not block the event loop. */
const TEXTS_MAX = 8;
/** More numbers for each text than any model gives. */
const NUMBERS_MAX = 8_192;
/** More fields, lists and objects than an answer has around the numbers. */
const FIELDS_MAX = 400;
/** Statuses that are caused by the texts themselves. */
const TEXT_ERRORS = new Set([400, 413, 422]);

type Call = {
  body: unknown;
  headers: Record<string, string>;
  dispatcher: Dispatcher;
  allowPrivate: boolean;
};

/** Refuses an answer with too many parts to parse in one step. */
const checkParts = async (bytes: Buffer): Promise<void> => {
  let [commas, others] = [0, 0];
  await forEachJsonMark(bytes, (mark) => {
    if (mark === JSON_MARKS.comma) commas += 1;
    else others += 1;
    if (commas > TEXTS_MAX * NUMBERS_MAX + FIELDS_MAX || others > FIELDS_MAX)
      throw new ModelError('the answer of the embeddings service has too many values');
  });
};

const send = async (url: string, { body, headers, dispatcher }: Call, signal: AbortSignal): Promise<unknown> => {
  const answer = await request(url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Accept: 'application/json', ...headers },
    body: JSON.stringify(body),
    dispatcher,
    signal,
  });
  try {
    if (answer.statusCode !== 200) {
      const reason = `the embeddings service answered ${answer.statusCode}`;
      throw TEXT_ERRORS.has(answer.statusCode) ? new TextsRefused(reason) : new ModelError(reason);
    }
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of answer.body as AsyncIterable<Uint8Array>) {
      bytes += chunk.length;
      if (bytes > MAX_BYTES) throw new ModelError('the answer of the embeddings service is too large');
      chunks.push(chunk);
    }
    const whole = Buffer.concat(chunks);
    await checkParts(whole);
    return JSON.parse(whole.toString());
  } finally {
    // A body that was not read to its end makes the connection unusable.
    if (!answer.body.readableEnded) answer.body.on('error', () => undefined).destroy();
  }
};

const failureOf = (cause: unknown): ModelError => {
  if (cause instanceof ModelError) return cause;
  const { name } = cause as Error;
  if (name === 'AddressRefused') return new ModelError('the embeddings service has an address that is not public');
  if (name === 'SyntaxError') return new ModelError('the embeddings service did not answer with JSON');
  return new ModelError('the embeddings service could not be reached');
};

/**
 * Posts JSON and returns the parsed answer, with one deadline for connection, request and answer. Throws a
 * `ModelError`.
 */
const postJson = async (url: string, call: Call): Promise<unknown> => {
  if (!checkEndpointUrl(url, call).ok) {
    throw new ModelError('EMBEDDINGS_URL is not allowed: it must be https, and public in production');
  }
  const late = () => new ModelError('the embeddings service did not answer in time');
  return withDeadline((signal) => send(url, call, signal), ANSWER_MS, { late }).catch((cause: unknown) => {
    throw failureOf(cause);
  });
};

const PROBE = 'Can I bring my dog?';
/** After this many failed requests in a row, no requests are sent to the service for a while. */
const FAILURES = 3;
/** A refused text is cut in halves down to this length. */
const SHORTEST_CUT = 250;

const isVector = (value: unknown): boolean => Array.isArray(value) && value.every((one) => typeof one === 'number');
// A list schema of zod would report each wrong item.
const Item = z.object({ index: z.int().min(0), embedding: z.custom<number[]>(isVector) });
const isShort = (value: unknown): boolean => Array.isArray(value) && value.length <= TEXTS_MAX;
const Answer = z.object({ data: z.custom<unknown[]>(isShort).pipe(z.array(Item)) });

type ServiceOptions = {
  url: string;
  model: string;
  key: string | undefined;
  dispatcher: Dispatcher;
  allowPrivate: boolean;
};

const readVectors = (answer: unknown, count: number): Float32Array[] => {
  const { data, success } = Answer.safeParse(answer);
  if (!success) throw new ModelError('the answer of the embeddings service has another shape');
  const ordered = data.data.toSorted((one, other) => one.index - other.index);
  if (ordered.length !== count || ordered.some(({ index }, at) => index !== at)) {
    throw new ModelError('the embeddings service gave another number of vectors than texts');
  }
  return ordered.map(({ embedding }) => Float32Array.from(embedding));
};

/** An OpenAI-compatible `/embeddings` endpoint. It embeds questions and passages in the same way. */
const remoteModel = ({ url, model, key, dispatcher, allowPrivate }: ServiceOptions): ModelBackend => {
  const ask = async (texts: string[]): Promise<Float32Array[]> => {
    const answer = await postJson(`${withoutSlashes(url)}/embeddings`, {
      body: { model, input: texts.map((text) => text || ' '), encoding_format: 'float' },
      headers: key === undefined ? {} : { Authorization: `Bearer ${key}` },
      dispatcher,
      allowPrivate,
    });
    return readVectors(answer, texts.length);
  };

  /**
   * One refused text fails a whole request, so the others are tried without it. Some services refuse long texts, so
   * only the beginning of a refused text is tried next.
   */
  const askForEach = async (texts: string[]): Promise<(Float32Array | null)[]> => {
    try {
      return await ask(texts);
    } catch (cause) {
      if (!(cause instanceof TextsRefused)) throw cause;
    }
    const half = Math.ceil(texts.length / 2);
    if (texts.length > 1)
      return [...(await askForEach(texts.slice(0, half))), ...(await askForEach(texts.slice(half)))];
    const [text = ''] = texts;
    if (text.length > SHORTEST_CUT) return askForEach([text.slice(0, text.length / 2).toWellFormed()]);
    await ask([PROBE]); // throws if the service refuses every text
    return [null];
  };

  return {
    limits: {
      texts: TEXTS_MAX,
      concurrency: 4,
      pieceBytes: 8_000,
      pieces: { query: 1, passage: 1 },
      answerMs: 1_600,
    },

    open: async (signal): Promise<OpenModel> => {
      const [probe] = await ask([PROBE]);
      const dimensions = normalised(probe ?? new Float32Array()).length;
      const ended = Promise.withResolvers<string>();
      signal.addEventListener('abort', () => ended.resolve('closed'), { once: true });
      if (signal.aborted) ended.resolve('closed');
      let failures = 0;
      const embed = async (texts: string[]): Promise<(Float32Array | null)[]> => {
        try {
          const vectors = await askForEach(texts);
          failures = 0;
          return vectors;
        } catch (cause) {
          failures += 1;
          if (failures >= FAILURES) ended.resolve((cause as Error).message);
          throw cause;
        }
      };
      const name = `${model}@${new URL(url).host}/${dimensions}`;
      return { model: name, dimensions, embed, ended: ended.promise, end: ended.resolve };
    },
  };
};

type SemanticConfig = Pick<
  Config,
  | 'SEMANTIC'
  | 'SEMANTIC_DIR'
  | 'SEMANTIC_MODEL'
  | 'SEMANTIC_PROCESSES'
  | 'SEMANTIC_WAIT_MS'
  | 'EMBEDDINGS_URL'
  | 'EMBEDDINGS_MODEL'
  | 'EMBEDDINGS_KEY'
  | 'WEBHOOK_ALLOW_PRIVATE'
>;

/** The maximum number of connections to an embeddings service. Further texts wait in the embedder's queue. */
const CONNECTIONS = 16;

/**
 * A turn costs the event loops and the stores three times what it costs the model. So the model gets a quarter of the
 * cores.
 */
const defaultProcesses = (): number => Math.min(8, Math.max(1, Math.floor(availableParallelism() / 4)));

type Chosen = { model: ModelBackend; close: () => Promise<void> } | { none: string };

/**
 * Chooses the model by the settings: an embeddings service if one is set, otherwise a chosen model, otherwise the local
 * one. If no model is chosen, `none` is the reason.
 */
const chooseModel = (config: SemanticConfig, isFitting: boolean): Chosen => {
  const { SEMANTIC, SEMANTIC_DIR, SEMANTIC_MODEL, EMBEDDINGS_URL, EMBEDDINGS_MODEL, EMBEDDINGS_KEY } = config;
  if (SEMANTIC === 'off') return { none: 'off (SEMANTIC=off)' };
  if (EMBEDDINGS_URL !== undefined && EMBEDDINGS_MODEL !== undefined) {
    const allowPrivate = config.WEBHOOK_ALLOW_PRIVATE;
    const dispatcher = openGuardedAgent({ allowPrivate, connections: CONNECTIONS });
    const model = remoteModel({
      url: EMBEDDINGS_URL,
      model: EMBEDDINGS_MODEL,
      key: EMBEDDINGS_KEY,
      dispatcher,
      allowPrivate,
    });
    return { model, close: () => dispatcher.destroy() };
  }
  const processes = config.SEMANTIC_PROCESSES ?? defaultProcesses();
  if (SEMANTIC_MODEL !== undefined) {
    const chosen = isFitting ? 'unfitted' : 'fitted';
    return { model: localModel(SEMANTIC_MODEL, { processes, chosen }), close: () => Promise.resolve() };
  }
  if (SEMANTIC_DIR === undefined) return { none: 'not installed (SEMANTIC_DIR is not set)' };
  return { model: localModel(SEMANTIC_DIR, { processes }), close: () => Promise.resolve() };
};

/**
 * The places of vectors in Redis: at most about 15 MB, or 30 MB if the vectors of tokens are there. A question takes
 * the place of another one, if they collide.
 */
const PLACES = 8_192;
const SHARED_S = 3_600;
const FOUND_WITHIN_MS = 20;
const HASH_BYTES = 32;
/** The hash is followed by the length of the vector in bytes. */
const HEAD_BYTES = HASH_BYTES + 4;

const bytesOf = (values: Float32Array | Int8Array): Uint8Array =>
  new Uint8Array(values.buffer, values.byteOffset, values.byteLength);

/**
 * Vectors of questions that all reply workers share through Redis for an hour. A key is the number of a place, and a
 * value begins with a hash of the question, so texts of visitors are not stored, and any number of them takes bounded
 * memory. While Redis is slow or away, each worker asks its own model.
 */
const createSharedVectors = (redis: RedisClient, prefix: string): SharedVectors => {
  const placeOf = (key: string) => {
    const hash = createHash('sha256').update(key).digest();
    return { hash, at: `${prefix}:vector:${hash.readUInt16BE() % PLACES}` };
  };
  return {
    find: async (key) => {
      if (redis.status !== 'ready') return null;
      const { hash, at } = placeOf(key);
      const value = await withDeadline(redis.getBuffer(at), FOUND_WITHIN_MS).catch(() => null);
      if (!value || value.length <= HEAD_BYTES || !value.subarray(0, HASH_BYTES).equals(hash)) return null;
      const end = HEAD_BYTES + value.readUInt32BE(HASH_BYTES);
      if (end > value.length) return null; // written by another version
      const vector = new Float32Array(Uint8Array.from(value.subarray(HEAD_BYTES, end)).buffer);
      return value.length > end
        ? { vector, tokens: new Int8Array(Uint8Array.from(value.subarray(end)).buffer) }
        : { vector };
    },
    keep: (key, { vector, tokens = new Int8Array() }) => {
      if (redis.status !== 'ready') return;
      const { hash, at } = placeOf(key);
      const length = Buffer.alloc(4);
      length.writeUInt32BE(vector.byteLength);
      const value = Buffer.concat([hash, length, bytesOf(vector), bytesOf(tokens)]);
      redis.set(at, value, 'EX', SHARED_S).catch(() => undefined);
    },
  };
};

type Options = {
  config: SemanticConfig;
  logger: Logger;
  count?: CountEmbedding;
  shared?: () => SharedVectors | null;
  /** The decision is being fitted to the model: it need not be fitted yet. */
  isFitting?: boolean;
};

/**
 * Opens the model that the settings choose. A missing model is not an error: `status` and one log line give the reason.
 */
export const openChosenEmbedder = async ({
  config,
  logger,
  count,
  shared,
  isFitting = false,
}: Options): Promise<Embedder> => {
  const chosen = chooseModel(config, isFitting);
  if ('none' in chosen) {
    const line = { reason: chosen.none };
    const text = 'semantic search is not available: lexical answers stand';
    if (config.SEMANTIC === 'on') logger.warn(line, text);
    else logger.info(line, text);
    return unavailableEmbedder(chosen.none);
  }
  const embedder = await openEmbedder(chosen.model, {
    log: logger,
    waitMs: config.SEMANTIC_WAIT_MS,
    ...(count && { count }),
    ...(shared && { shared }),
  });
  return {
    ...embedder,
    close: async () => {
      await embedder.close();
      await chosen.close();
    },
  };
};

/** An embedder that opens together with the stores, because both take about the same time. */
export type OpeningEmbedder = {
  opened: Promise<Embedder>;
  /** From now on, vectors of questions are shared with other processes. */
  share: (redis: RedisClient, prefix: string) => void;
};

type OpeningOptions = Omit<Options, 'shared'> & {
  lifecycle: Lifecycle;
  /** Tests pass their own. */
  embedder?: Embedder | undefined;
};

export const beginEmbedder = ({ lifecycle, embedder, ...options }: OpeningOptions): OpeningEmbedder => {
  let sharedVectors: SharedVectors | null = null;
  const opened = embedder ? Promise.resolve(embedder) : openChosenEmbedder({ ...options, shared: () => sharedVectors });
  void lifecycle.add('embedder', opened, async (one) => (await one).close());
  return {
    opened,
    share: (redis, prefix) => {
      sharedVectors = createSharedVectors(redis, prefix);
    },
  };
};
