import * as z from 'zod';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { writeLocalWeights } from '@parley/understanding/evaluation';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { openChosenEmbedder } from '../../src/embedder.ts';

const ROOT = join(import.meta.dirname, '../..');
const Report = z.object({ header: z.object({ glibcVersionRuntime: z.string().optional() }) });
const Located = z.object({ semantic: z.object({ folder: z.string() }).optional() });

/** Whether this machine supports the local model. On others, the tests check its absence. */
export const isLocalModelFor =
  process.platform === 'linux' && Report.parse(process.report.getReport()).header.glibcVersionRuntime !== undefined;

/** The folder of the unpacked model. If the tests run without the launcher, the set-up script is called to find it. */
export const modelFolder = (): string => {
  const configured = process.env['SEMANTIC_DIR'];
  if (configured) return configured;
  const located = execFileSync(process.execPath, [join(ROOT, 'scripts/run.js'), 'locate', 'semantic'], {
    encoding: 'utf8',
    env: { ...process.env, SEMANTIC: '', SETUP_SEMANTIC: '', EMBEDDINGS_URL: '' },
  });
  const { semantic } = Located.parse(JSON.parse(located));
  if (!semantic) throw new Error('the set-up brought no model: see what `node scripts/run.js locate semantic` says');
  return semantic.folder;
};

/**
 * The local model in the form in which `SEMANTIC_MODEL` takes any: a folder with its graph, its tokenizer and the weights of
 * the decision. The caller removes it.
 */
export const aChosenModel = async (): Promise<string> => {
  const folder = await mkdtemp(join(tmpdir(), 'parley-chosen-'));
  const program = join(ROOT, 'packages/understanding/setup/convert-model.ts');
  execFileSync(process.execPath, [program, modelFolder(), folder]);
  await writeLocalWeights(folder);
  return folder;
};

/** An embedder as a worker opens it, with its counts and log. */
export const anEmbedder = async (env: Record<string, string>) => {
  const counts: Record<string, number> = {};
  let log = '';
  const destination = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      log += chunk.toString();
      done();
    },
  });
  const embedder = await openChosenEmbedder({
    config: readConfig({ NODE_ENV: 'test', WEBHOOK_ALLOW_PRIVATE: 'true', ...env }),
    logger: createLogger({ name: 'test', level: 'info' }, destination),
    count: (_kind, result, by = 1) => {
      counts[result] = (counts[result] ?? 0) + by;
    },
  });
  return { ...embedder, counts, log: () => log };
};

const childrenOf = (pid: number): number[] =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);

/** The ids of the model processes that a process has started. */
export const modelProcessesOf = (pid = process.pid): number[] =>
  childrenOf(pid).filter((child) => {
    try {
      return readFileSync(`/proc/${child}/cmdline`, 'utf8').includes('model-process-main.ts');
    } catch {
      return false; // it has just ended
    }
  });

export const cosineOf = (one: Float32Array = new Float32Array(), other: Float32Array = new Float32Array()): number =>
  one.reduce((sum, value, at) => sum + value * (other[at] ?? Number.NaN), 0);
