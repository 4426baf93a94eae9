import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';
import { compressed } from '../../dashboard/build/budget.ts';

/** What a page loads in all, in bytes as gzip sends them. */
const WEIGHT_MAX = 25_000;

/** The script that pages name. It loads the file with the hash, from where it came itself. */
const loaderOf = (file: string): string =>
  `(()=>{const s=document.currentScript;import(new URL(${JSON.stringify(file)},s.src).href).then(m=>m.start(s))})();\n`;

const loader = (): Plugin => ({
  name: 'loader',
  async writeBundle({ dir = '' }, bundle) {
    const entry = Object.values(bundle).find((file) => file.type === 'chunk' && file.isEntry);
    if (!entry) throw new Error('the build has no entry');
    const text = loaderOf(entry.fileName);
    const sizes = [text, await readFile(join(dir, entry.fileName))].map((file) => gzipSync(file, { level: 9 }).length);
    const weight = sizes.reduce((sum, size) => sum + size, 0);
    const words = `${(weight / 1000).toFixed(1)} kB of ${WEIGHT_MAX / 1000} kB`;
    if (weight > WEIGHT_MAX) {
      await rm(dir, { recursive: true });
      throw new Error(`too heavy: ${words}`);
    }
    await writeFile(join(dir, 'widget.js'), text);
    await writeFile(join(dir, '.weight'), words);
  },
});

export default defineConfig({
  root: import.meta.dirname,
  plugins: [compressed(), loader()],
  build: {
    target: 'es2022',
    modulePreload: false,
    reportCompressedSize: false,
    rollupOptions: {
      input: join(import.meta.dirname, 'src/start.ts'),
      preserveEntrySignatures: 'strict',
      output: { entryFileNames: 'widget/app-[hash:8].js' },
    },
  },
});
