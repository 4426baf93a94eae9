import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { apiCollection } from './collection.ts';
import { pythonAsyncClient, pythonTypes } from './python.ts';
import { typescriptTypes } from './typescript.ts';

const ROOT = join(import.meta.dirname, '../..');
const PYTHON = 'packages/python/src/parley';

const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

/** The text as the formatter of this repository writes it. */
const formatted = (file: string, text: string): string => {
  const biome = join(ROOT, 'node_modules/.bin/biome');
  const run = spawnSync(biome, ['format', `--stdin-file-path=${file}`], { cwd: ROOT, input: text, encoding: 'utf8' });
  if (run.status !== 0) throw new Error(`${file} could not be formatted: ${run.stderr}`);
  return run.stdout;
};

/** Each generated file with its text. */
export const generatedFiles = (): { file: string; text: string }[] => {
  const types = 'packages/client/src/types.ts';
  const collection = 'examples/parley.postman_collection.json';
  return [
    { file: collection, text: formatted(collection, apiCollection()) },
    { file: types, text: formatted(types, typescriptTypes()) },
    { file: `${PYTHON}/types.py`, text: pythonTypes() },
    { file: `${PYTHON}/async_client.py`, text: pythonAsyncClient(read(`${PYTHON}/client.py`)) },
  ];
};
