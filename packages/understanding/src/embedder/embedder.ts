import { setTimeout as sleep } from 'node:timers/promises';
import type { ModelCalibration } from '../calibration.ts';
import {
  type CountEmbedding,
  type Embedded,
  type EmbeddedKind,
  type ModelBackend,
  ModelError,
  type ModelStatus,
  type OpenModel,
  type Priority,
  type SharedVectors,
} from './backend.ts';
import { createEmbedding } from './embedding.ts';
import { readCalibration } from './model-folder.ts';
import { createSupervisedModel, type EmbedderLog, startModelProcess } from './model-process.ts';
import type { TokenVectors } from './token-vectors.ts';

export type { CountEmbedding, EmbedderLog };

const PROBE = 'Can I bring my dog?';
/** The first values of the vector that the model must return for the probe text. */
const PROBE_VECTOR = [
  0.0436, -0.0333, -0.0168, -0.0525, 0.0844, -0.0673, 0.0632, 0.0207, 0.042, 0.0367, 0.0141, 0.022, 0.08, -0.0742,
  -0.0395, 0.0424, 0.0686, -0.0443, -0.0073, -0.0537, 0.0004, -0.0027, -0.0558, 0.0817,
];
/** The least cosine between these values and the model's. Kinds of processors differ only in how they round. */
const LEAST_COSINE = 0.999;

const isProbeVector = (vector: Float32Array): boolean => {
  const first = vector.slice(0, PROBE_VECTOR.length);
  const product = PROBE_VECTOR.reduce((sum, value, at) => sum + value * (first[at] ?? Number.NaN), 0);
  return product / (Math.hypot(...PROBE_VECTOR) * Math.hypot(...first)) >= LEAST_COSINE;
};

/**
 * A process has one text in work and one waiting, so that it is not idle while the event loop is too busy to send the
 * next.
 */
const AHEAD = 2;

/** Starts a process. That of the local model must return the known vector of a probe text before it is used. */
const startProbed = async (folder: string, signal: AbortSignal, isChosen: boolean) => {
  const started = await startModelProcess(folder, signal, isChosen);
  const { vector: probe } = await started.embed(PROBE, 'query');
  if (!isChosen && !isProbeVector(probe)) {
    started.end('a wrong vector');
    throw new ModelError('the model gives a wrong vector for a known text');
  }
  return { ...started, dimensions: probe.length, texts: 0 };
};

type ProbedProcess = Awaited<ReturnType<typeof startProbed>>;

/** Starts all processes, or none if one of them does not start. */
const startAll = async (
  folder: string,
  { processes, isChosen }: { processes: number; isChosen: boolean },
  signal: AbortSignal,
): Promise<ProbedProcess[]> => {
  const starting = await Promise.allSettled(
    Array.from({ length: processes }, () => startProbed(folder, signal, isChosen)),
  );
  const started = starting.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
  const failed = starting.find((one) => one.status === 'rejected');
  if (!failed) return started;
  for (const { end } of started) end('another process did not start');
  throw failed.reason;
};

/**
 * Pieces are short, because a turn may wait for a text that is already being embedded. 320 bytes are about 85 tokens
 * and take 0.03 s.
 */
export const LOCAL_PIECES = { pieceBytes: 320, pieces: { query: 3, passage: 7 } };

type LocalOptions = {
  processes?: number;
  /**
   * Whether an operator has chosen the model of the folder (`SEMANTIC_MODEL`). `unfitted`: it is opened even if the
   * decision was not fitted to it, as the evaluation does that fits it.
   */
  chosen?: false | 'fitted' | 'unfitted';
};

/** A model in separate processes: multilingual-e5-small, or one that was chosen. If one of them ends, all start again. */
export const localModel = (folder: string, { processes = 1, chosen = false }: LocalOptions = {}): ModelBackend => ({
  limits: { ...LOCAL_PIECES, texts: 1, concurrency: AHEAD * processes, answerMs: 400 },

  open: async (signal): Promise<OpenModel> => {
    const started = await startAll(folder, { processes, isChosen: chosen !== false }, signal);
    const end = (reason: string): void => {
      for (const one of started) one.end(reason);
    };
    const ended = Promise.race(started.map((one) => one.ended));
    void ended.then(end);
    const [first] = started;
    if (!first) throw new ModelError('no process runs the model');
    const { model, tokenKind, dimensions } = first;
    let calibration: ModelCalibration | undefined;
    try {
      if (chosen === 'fitted') calibration = readCalibration(folder, model);
    } catch (cause) {
      end('not fitted');
      throw cause;
    }
    const embed = async (text: string, kind: EmbeddedKind, withTokens: boolean): Promise<Embedded> => {
      const idlest = started.reduce((least, one) => (one.texts < least.texts ? one : least), first);
      idlest.texts += 1;
      return idlest.embed(text, kind, withTokens).finally(() => (idlest.texts -= 1));
    };
    return {
      model,
      dimensions,
      calibration,
      embed: async (texts, kind) => {
        const answers = await Promise.all(texts.map((text) => embed(text, kind, false)));
        return answers.map(({ vector }) => vector);
      },
      ...(tokenKind !== null && {
        withTokens: { kind: tokenKind, embed: (text: string, kind: EmbeddedKind) => embed(text, kind, true) },
      }),
      ended,
      end,
    };
  },
});

type TextOptions = { holder: string; priority?: Priority; since?: number | undefined };

export type Embedder = {
  /**
   * Returns vectors of length 1 in the order of the texts; do not modify them. Returns null if the model is not
   * available right now (off, not installed, too busy, too slow, restarting). The caller then works without vectors.
   * `holder` is the assistant that the texts are for: assistants share the model. `since` is when the turn asked for
   * its first text. Omit it for this first text.
   */
  embed: (texts: string[], kind: EmbeddedKind, options: TextOptions) => Promise<Float32Array[] | null>;
  /** The same with the vectors of the texts' tokens. Null if the model has none. */
  embedTokens: (
    texts: string[],
    kind: EmbeddedKind,
    options: TextOptions,
  ) => Promise<(TokenVectors & { vector: Float32Array })[] | null>;
  /** One vector of a turn's question with the vectors of its tokens, which are null if the model has none. */
  embedQuestion: (
    text: string,
    options: TextOptions,
  ) => Promise<{ vector: Float32Array; tokens: TokenVectors | null } | null>;
  /** Model name and version, stored with each vector. Null while no model is available. */
  model: () => string | null;
  /** What fits the decision to the model. Null: it was fitted to the local model. */
  calibration: () => ModelCalibration | null;
  /** False if the settings name no model. */
  isConfigured: boolean;
  /** Waits for the end of the first try to open the model, at most as long as a turn may wait. */
  firstTry: () => Promise<void>;
  /** One line for the log, the doctor and the assistant's page. */
  status: () => ModelStatus;
  close: () => Promise<void>;
};

/** How long a start waits for the model. After this time, the model continues to open in the background. */
const FIRST_TRY_MS = 3_000;
/** The longest expected wait of a turn for the model, unless the caller sets another. */
const WAIT_MS = 400;

/** An embedder that gives no vectors. */
export const unavailableEmbedder = (detail: string): Embedder => ({
  embed: () => Promise.resolve(null),
  embedTokens: () => Promise.resolve(null),
  embedQuestion: () => Promise.resolve(null),
  model: () => null,
  calibration: () => null,
  isConfigured: false,
  firstTry: () => Promise.resolve(),
  status: () => ({ available: false, detail }),
  close: () => Promise.resolve(),
});

type EmbedderOptions = {
  log: EmbedderLog;
  count?: CountEmbedding;
  waitMs?: number;
  /** Vectors that processes share. Null until they are known. */
  shared?: () => SharedVectors | null;
};

/** Opens a model. A model that does not open is not an error: `status` and one log line give the reason. */
export const openEmbedder = async (
  backend: ModelBackend,
  { log, count = () => undefined, waitMs = WAIT_MS, shared = () => null }: EmbedderOptions,
): Promise<Embedder> => {
  const model = createSupervisedModel(backend, log);
  const embed = createEmbedding({ model, count, waitMs, shared });
  let isTried = false;
  void model.firstTry.then(() => (isTried = true));
  const firstTry = async (mostMs: number): Promise<void> => {
    const ended = new AbortController();
    const late = sleep(mostMs, undefined, { signal: ended.signal }).catch(() => undefined);
    await Promise.race([model.firstTry, late]);
    ended.abort();
  };
  await firstTry(FIRST_TRY_MS);
  return {
    embed: async (texts, kind, { holder, priority = 'turn', since }) => {
      if (priority === 'turn' && !isTried) await firstTry(waitMs);
      const made = await embed(texts, kind, { holder, priority, since, withTokens: false });
      return made && made.map(({ vector }) => vector);
    },
    embedTokens: async (texts, kind, { holder, priority = 'turn', since }) => {
      const tokenKind = model.tokenKind();
      if (tokenKind === null) return null;
      const made = await embed(texts, kind, { holder, priority, since, withTokens: true });
      return made && made.map(({ vector, tokens = new Int8Array() }) => ({ kind: tokenKind, vector, tokens }));
    },
    embedQuestion: async (text, { holder, priority = 'turn', since }) => {
      if (priority === 'turn' && !isTried) await firstTry(waitMs);
      const kind = model.tokenKind();
      const [made] = (await embed([text], 'query', { holder, priority, since, withTokens: kind !== null })) ?? [];
      return made ? { vector: made.vector, tokens: kind && made.tokens ? { kind, tokens: made.tokens } : null } : null;
    },
    model: model.model,
    calibration: model.calibration,
    isConfigured: true,
    firstTry: async () => (isTried ? undefined : firstTry(waitMs)),
    status: model.status,
    close: model.close,
  };
};
