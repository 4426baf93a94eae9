import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { readConfig } from '../../src/platform/config.ts';
import { createLogger } from '../../src/platform/logger.ts';
import type { TextKind } from '../../workers/reply/embedder/backend.ts';
import { openEmbedder } from '../../workers/reply/embedder/embedder.ts';

const FOLDER = join(import.meta.dirname, '../../.local/eval');
const silent = new Writable({ write: (_chunk, _encoding, done) => done() });

const keyOf = (kind: TextKind, text: string): string =>
  createHash('sha256').update(`${kind}\n${text}`).digest('base64url').slice(0, 22);

const readCached = (file: string): Map<string, Float32Array> => {
  const known = new Map<string, Float32Array>();
  if (!existsSync(file)) return known;
  for (const line of readFileSync(file, 'utf8').split('\n').filter(Boolean)) {
    const [key = '', vector = ''] = line.split(' ');
    known.set(key, new Float32Array(Uint8Array.from(Buffer.from(vector, 'base64')).buffer));
  }
  return known;
};

export type TextVectors = { model: string; of: (kind: TextKind, text: string) => Float32Array };

/**
 * Vectors of texts by the real model, through the embedder as a worker opens it. Kept in `.local/eval`, so that only the
 * first run waits for them. Null, with the reason: there is no model here.
 */
export const embedTexts = async (
  wanted: readonly (readonly [TextKind, string])[],
  env: Record<string, string | undefined> = process.env,
): Promise<TextVectors | { none: string }> => {
  const { SEMANTIC, SEMANTIC_DIR, EMBEDDINGS_URL, EMBEDDINGS_MODEL, EMBEDDINGS_KEY } = env;
  const given = { SEMANTIC, SEMANTIC_DIR, EMBEDDINGS_URL, EMBEDDINGS_MODEL, EMBEDDINGS_KEY };
  const config = readConfig({ NODE_ENV: 'test', WEBHOOK_ALLOW_PRIVATE: 'true', ...given });
  const embedder = await openEmbedder({ config, logger: createLogger({ name: 'eval', level: 'warn' }, silent) });
  try {
    const model = embedder.model();
    if (model === null) return { none: embedder.status().detail };
    const file = join(FOLDER, `${model.replaceAll(/[^\w.@-]/g, '-')}.txt`);
    const known = readCached(file);
    const missing = new Map(wanted.map(([kind, text]) => [keyOf(kind, text), [kind, text] as const]));
    for (const key of known.keys()) missing.delete(key);
    for (const [key, [kind, text]] of missing) {
      const [vector] = (await embedder.embed([text], kind, { priority: 'background' })) ?? [];
      if (!vector) throw new Error(`no vector: ${embedder.status().detail}`);
      known.set(key, vector);
    }
    if (missing.size > 0) {
      mkdirSync(FOLDER, { recursive: true });
      const lines = [...known].map(
        ([key, { buffer, byteOffset, byteLength }]) =>
          `${key} ${Buffer.from(buffer, byteOffset, byteLength).toString('base64')}\n`,
      );
      writeFileSync(`${file}.${process.pid}`, lines.join(''));
      renameSync(`${file}.${process.pid}`, file); // whole or not at all: tests run side by side
    }
    return {
      model,
      of: (kind, text) => {
        const vector = known.get(keyOf(kind, text));
        if (!vector) throw new Error('a text that was not asked for');
        return vector;
      },
    };
  } finally {
    await embedder.close();
  }
};
