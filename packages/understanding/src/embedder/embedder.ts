import { setTimeout as sleep } from 'node:timers/promises';
import {
  type CountEmbedding,
  type EmbeddedKind,
  type ModelBackend,
  ModelError,
  type ModelStatus,
  type OpenModel,
  type Priority,
} from './backend.ts';
import { createEmbedding } from './embedding.ts';
import { MODEL } from './model-files.ts';
import { createSupervisedModel, type EmbedderLog, startModelProcess } from './model-process.ts';

export type { CountEmbedding, EmbedderLog };

const PROBE = 'Can I bring my dog?';
/** The first values of the vector that the model must return for the probe text. */
const PROBE_VECTOR = [
  0.0424, -0.0372, -0.014, -0.0617, 0.0832, -0.0674, 0.0624, 0.0171, 0.0365, 0.0354, 0.0134, 0.027, 0.0876, -0.07,
  -0.0373, 0.0401, 0.0661, -0.0469, -0.0058, -0.0549, 0.0025, -0.0008, -0.0539, 0.0833,
];
/** The largest allowed difference from each of these values, because processors round differently. */
const TOLERANCE = 0.005;

const isProbeVector = (vector: Float32Array): boolean =>
  PROBE_VECTOR.every((value, at) => Math.abs(value - (vector[at] ?? Number.NaN)) <= TOLERANCE);

/**
 * multilingual-e5-small in a separate process. Before the model is used, it must return the known vector of a probe
 * text.
 */
const e5 = (folder: string): ModelBackend => ({
  // Limited, because a turn may wait for a text that is already being embedded. 320 bytes are about 85 tokens and take
  // 0.1 s.
  limits: { texts: 1, concurrency: 1, pieceBytes: 320, pieces: { query: 3, passage: 7 } },

  open: async (signal): Promise<OpenModel> => {
    const { embed, ended, end } = await startModelProcess(folder, signal);
    const probe = await embed(PROBE, 'query');
    if (!isProbeVector(probe)) {
      end('a wrong vector');
      throw new ModelError('the engine gives a wrong vector for a known text');
    }
    return {
      model: MODEL,
      dimensions: probe.length,
      embed: (texts, kind) => Promise.all(texts.map((text) => embed(text, kind))),
      ended,
      end,
    };
  },
});

/** The model in this folder, if there is one for this machine. `none` is the reason if not. */
export const localModel = (folder: string): ModelBackend | { none: string } =>
  process.platform === 'linux' && process.arch === 'x64'
    ? e5(folder)
    : { none: `no local model for ${process.platform} ${process.arch}` };

export type Embedder = {
  /**
   * Returns vectors of length 1 in the order of the texts; do not modify them. Returns null if the model is not
   * available right now (off, not installed, queue full, too slow, restarting). The caller then works without vectors.
   * `holder` is the assistant that the texts are for: assistants share the model.
   */
  embed: (
    texts: string[],
    kind: EmbeddedKind,
    options: { holder: string; priority?: Priority },
  ) => Promise<Float32Array[] | null>;
  /** Model name and version, stored with each vector. Null while no model is available. */
  model: () => string | null;
  /** One line for the log, the doctor and the assistant's page. */
  status: () => ModelStatus;
  close: () => Promise<void>;
};

/** How long a start waits for the model. After this time, the model continues to open in the background. */
const FIRST_TRY_MS = 3_000;

/** An embedder that gives no vectors. */
export const unavailableEmbedder = (detail: string): Embedder => ({
  embed: () => Promise.resolve(null),
  model: () => null,
  status: () => ({ available: false, detail }),
  close: () => Promise.resolve(),
});

/** Opens a model. A model that does not open is not an error: `status` and one log line give the reason. */
export const openEmbedder = async (
  backend: ModelBackend,
  { log, count = () => undefined }: { log: EmbedderLog; count?: CountEmbedding },
): Promise<Embedder> => {
  const model = createSupervisedModel(backend, log);
  const embed = createEmbedding({ model, count });
  const opened = new AbortController();
  const late = sleep(FIRST_TRY_MS, undefined, { signal: opened.signal }).catch(() => undefined);
  await Promise.race([model.firstTry, late]);
  opened.abort();
  return {
    embed: (texts, kind, { holder, priority = 'turn' }) => embed(texts, kind, { holder, priority }),
    model: model.model,
    status: model.status,
    close: model.close,
  };
};
