import { setPriority } from 'node:os';
import koffi from 'koffi';
import { filesIn, findDamage } from './model-files.ts';
import type { ModelMessage, ModelRequest } from './model-process.ts';

/**
 * The process that runs the local model's native code, started by `model-process.ts`. A crash here loses a vector, but
 * never a worker. The process runs until its parent disconnects or kills it.
 */

/** Lowers the priority of this process, so that the event loops that answer callers go first. */
const NICE = 5;

const send = (message: ModelMessage): void => void process.send?.(message);

const openModel = (folder: string) => {
  const { engine, weights } = filesIn(folder);
  const library = koffi.load(engine);
  const load = library.func('void *e5_load(const char *path)');
  const dimensionsOf = library.func('int e5_dim(void *model)');
  const embed = library.func('int e5_embed(void *model, const char *text, int is_query, _Out_ float *out)');
  const model: unknown = load(weights);
  if (model === null) throw new Error('the library did not load the model');
  const dimensions = Number(dimensionsOf(model));

  return (text: string, isQuery: boolean): Promise<Float32Array<ArrayBuffer>> =>
    new Promise((resolve, reject) => {
      const vector = new Float32Array(dimensions);
      // The call runs on another thread, so that this process notices when its parent has ended.
      embed.async(model, text, isQuery ? 1 : 0, vector, (cause: Error | null, status: number) => {
        if (cause) reject(cause);
        else if (status === 0) resolve(vector);
        else reject(new Error(`status ${status}`));
      });
    });
};

const main = async (folder: string): Promise<void> => {
  const damage = await findDamage(folder);
  if (damage !== null) return send({ type: 'unusable', reason: damage });
  let embed: ReturnType<typeof openModel>;
  try {
    embed = openModel(folder);
  } catch (cause) {
    return send({ type: 'unusable', reason: `the engine does not run here: ${(cause as Error).message}` });
  }
  process.on('message', ({ id, text, isQuery }: ModelRequest) => {
    embed(text, isQuery).then(
      (vector) => send({ type: 'vector', id, vector }),
      () => send({ type: 'failed', id }),
    );
  });
  send({ type: 'ready' });
};

// SIGKILL is used, because an ordinary exit would wait for a thread that hangs in native code.
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
// These signals are ignored: Ctrl-C reaches the whole process group, but the worker first finishes its turns and may
// need vectors for them.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined);
setPriority(NICE);
await main(process.argv[2] ?? '');
