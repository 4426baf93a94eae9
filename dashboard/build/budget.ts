import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import type { Plugin } from 'vite';

/** What a browser may have to load before the first page stands, in bytes of gzipped JavaScript. */
const FIRST_LOAD_MAX = 250_000;
const COMPRESSIBLE = /\.(?:js|css|svg)$/;
const WORTH_IT_BYTES = 1_000;

type Chunk = { type: 'chunk'; fileName: string; code: string; imports: string[]; isEntry: boolean };
type Asset = { type: 'asset'; fileName: string; source: string | Uint8Array };
type Bundle = Record<string, Chunk | Asset>;

const withImports = (name: string, bundle: Bundle, seen = new Set<string>()): Set<string> => {
  const file = bundle[name];
  if (seen.has(name) || file?.type !== 'chunk') return seen;
  seen.add(name);
  for (const imported of file.imports) withImports(imported, bundle, seen);
  return seen;
};

const kB = (bytes: number): string => `${(bytes / 1000).toFixed(1)} kB`;

/** Says what a first load weighs, and ends the build where that is too much. */
export const firstLoadBudget = (): Plugin => ({
  name: 'first-load-budget',
  generateBundle(_options, output) {
    const bundle = output as unknown as Bundle; // the bundler's own type says the same in more words
    const entry = Object.values(bundle).find((file) => file.type === 'chunk' && file.isEntry);
    if (!entry) throw new Error('the build has no entry');
    const sizeOf = (name: string): number => {
      const file = bundle[name];
      return file?.type === 'chunk' ? gzipSync(file.code).length : 0;
    };
    const first = [...withImports(entry.fileName, bundle)].reduce((sum, name) => sum + sizeOf(name), 0);
    const words = `first load ${kB(first)} of ${kB(FIRST_LOAD_MAX)}`;
    if (first > FIRST_LOAD_MAX) throw new Error(`too heavy: ${words}`);
    this.emitFile({ type: 'asset', fileName: '.weight', source: words });
    this.info(words);
  },
});

/** Beside each file its compressed forms, made once here instead of at every request; after all else has had its hand in it. */
export const compressed = (): Plugin => ({
  name: 'compressed',
  async writeBundle({ dir = '' }, bundle) {
    const files = Object.keys(bundle).filter((name) => COMPRESSIBLE.test(name));
    await Promise.all(
      files.map(async (name) => {
        const bytes = await readFile(join(dir, name));
        if (bytes.length < WORTH_IT_BYTES) return;
        const brotli = brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } });
        await writeFile(join(dir, `${name}.br`), brotli);
        await writeFile(join(dir, `${name}.gz`), gzipSync(bytes, { level: 9 }));
      }),
    );
  },
});
