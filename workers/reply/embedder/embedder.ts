import { withDeadline } from '../../../src/platform/deadline.ts';
import type { Logger } from '../../../src/platform/logger.ts';
import type { CountEmbedding } from '../../../src/service-metrics.ts';
import type { Priority, Status, TextKind } from './backend.ts';
import { chooseModel, type SemanticConfig } from './choose.ts';
import { createEmbedding } from './embedding.ts';
import { createSupervisedModel } from './supervised-model.ts';

export type Embedder = {
  /**
   * Returns vectors of length 1 in the order of the texts; do not modify them. Returns null if the model is not
   * available right now (off, not installed, queue full, too slow, restarting). The caller then works without vectors.
   * `holder` is the assistant that the texts are for: assistants share the model.
   */
  embed: (
    texts: string[],
    kind: TextKind,
    options: { holder: string; priority?: Priority },
  ) => Promise<Float32Array[] | null>;
  /** Model name and version, stored with each vector. Null while no model is available. */
  model: () => string | null;
  /** One line for the log, the doctor and the assistant's page. */
  status: () => Status;
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
