/** `npm run eval` measures how well questions are understood, with the model that the settings choose. */
import { evaluate } from '@parley/understanding/evaluation';
import { openReader } from '@parley/reading';
import { join } from 'node:path';
import { readConfig } from '../src/platform/process/config.ts';
import { createLogger } from '../src/platform/process/logger.ts';
import { openChosenEmbedder } from '../src/embedder.ts';

const { SEMANTIC, SEMANTIC_DIR, SEMANTIC_MODEL, EMBEDDINGS_URL, EMBEDDINGS_MODEL, EMBEDDINGS_KEY } = process.env;
const given = { SEMANTIC, SEMANTIC_DIR, SEMANTIC_MODEL, EMBEDDINGS_URL, EMBEDDINGS_MODEL, EMBEDDINGS_KEY };
const config = readConfig({ NODE_ENV: 'test', WEBHOOK_ALLOW_PRIVATE: 'true', ...given });
const logger = createLogger({ name: 'eval', level: 'silent' });

const args = process.argv.slice(2);
const model = {
  open: () => openChosenEmbedder({ config, logger, isFitting: args[0] === 'calibrate' }),
  folder: join(import.meta.dirname, '../.local/eval'),
};
const reader = openReader();
const readDocument = async (bytes: Uint8Array, name: string) => {
  const page = await reader.read({ bytes, contentType: null, name, url: null });
  if ('failed' in page) throw new Error(`${name}: ${page.message}`);
  return page;
};
const folders = { localFolder: SEMANTIC_DIR ?? '', chosenFolder: SEMANTIC_MODEL };
await evaluate(args, model, { ...folders, readDocument });
await reader.close();
