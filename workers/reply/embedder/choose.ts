import type { Config } from '../../../src/platform/config.ts';
import { openProviderAgent } from '../engines/openai/connection.ts';
import type { ModelBackend } from './backend.ts';
import { localModel } from './local.ts';
import { remoteModel } from './remote.ts';

export type SemanticConfig = Pick<
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
export const chooseModel = (config: SemanticConfig): Chosen => {
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
