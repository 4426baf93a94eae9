import type { Config } from '../../../src/process/config.ts';
import { withDeadline } from '../../../src/process/deadline.ts';
import type { Logger } from '../../../src/process/logger.ts';
import type { CountEmbedding } from '../../../src/service-metrics.ts';
import { openProviderAgent } from '../engines/openai/completion.ts';
import {
  type ModelBackend,
  ModelError,
  type OpenModel,
  type Priority,
  type ModelStatus,
  type EmbeddedKind,
} from './backend.ts';
import { createEmbedding } from './embedding.ts';
import { MODEL } from './model-files.ts';
import { createSupervisedModel, startModelProcess } from './model-process.ts';
import { remoteModel } from './remote.ts';

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
const localModel = (folder: string): ModelBackend => ({
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

type SemanticConfig = Pick<
  Config,
  'SEMANTIC' | 'SEMANTIC_DIR' | 'EMBEDDINGS_URL' | 'EMBEDDINGS_MODEL' | 'EMBEDDINGS_KEY' | 'WEBHOOK_ALLOW_PRIVATE'
>;

/** The maximum number of connections to an embeddings service. Further texts wait in the embedder's queue. */
const CONNECTIONS = 16;

type Chosen = { model: ModelBackend; close: () => Promise<void> } | { none: string };

/**
 * Chooses the model by the settings: an embeddings service if one is set, otherwise the local model. If no model is
 * chosen, `none` is the reason.
 */
const chooseModel = (config: SemanticConfig): Chosen => {
  const { SEMANTIC, SEMANTIC_DIR, EMBEDDINGS_URL, EMBEDDINGS_MODEL, EMBEDDINGS_KEY } = config;
  if (SEMANTIC === 'off') return { none: 'off (SEMANTIC=off)' };
  if (EMBEDDINGS_URL !== undefined && EMBEDDINGS_MODEL !== undefined) {
    const allowPrivate = config.WEBHOOK_ALLOW_PRIVATE;
    const dispatcher = openProviderAgent({ allowPrivate, connections: CONNECTIONS });
    const model = remoteModel({
      url: EMBEDDINGS_URL,
      model: EMBEDDINGS_MODEL,
      key: EMBEDDINGS_KEY,
      dispatcher,
      allowPrivate,
    });
    return { model, close: () => dispatcher.destroy() };
  }
  if (SEMANTIC_DIR === undefined) return { none: 'not installed (SEMANTIC_DIR is not set)' };
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    return { none: `no local model for ${process.platform} ${process.arch}` };
  }
  return { model: localModel(SEMANTIC_DIR), close: () => Promise.resolve() };
};

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

type Options = { config: SemanticConfig; logger: Logger; count?: CountEmbedding };

/** How long a start waits for the model. After this time, the model continues to open in the background. */
const FIRST_TRY_MS = 3_000;

const unavailableEmbedder = (detail: string): Embedder => ({
  embed: () => Promise.resolve(null),
  model: () => null,
  status: () => ({ available: false, detail }),
  close: () => Promise.resolve(),
});

/**
 * Opens the model that the settings choose. A missing model is not an error: `status` and one log line give the reason.
 */
export const openEmbedder = async ({ config, logger, count = () => undefined }: Options): Promise<Embedder> => {
  const chosen = chooseModel(config);
  if ('none' in chosen) {
    const line = { reason: chosen.none };
    const text = 'semantic search is not available: lexical answers stand';
    if (config.SEMANTIC === 'on') logger.warn(line, text);
    else logger.info(line, text);
    return unavailableEmbedder(chosen.none);
  }
  const model = createSupervisedModel(chosen.model, logger);
  const embed = createEmbedding({ model, count });
  await withDeadline(model.firstTry, FIRST_TRY_MS).catch(() => undefined);
  return {
    embed: (texts, kind, { holder, priority = 'turn' }) => embed(texts, kind, { holder, priority }),
    model: model.model,
    status: model.status,
    close: async () => {
      await model.close();
      await chosen.close();
    },
  };
};
