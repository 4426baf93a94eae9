import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { SourceError, type TextKind } from './backend.ts';
import { FromEngine, type ToEngine } from './engine-message.ts';

const PROGRAM = join(import.meta.dirname, 'engine-main.ts');
/** Small heaps: nearly all its memory is the model, which is mapped and shared. */
const FLAGS = ['--max-old-space-size=64', '--max-semi-space-size=1', '--v8-pool-size=1'];
const START_MS = 20_000;
/** A piece takes 0.2 s, on a machine under load a few times that; after this the engine hangs. */
const ANSWER_MS = 5_000;

type Waiting = { resolve: (vector: Float32Array) => void; reject: (cause: Error) => void; timer: NodeJS.Timeout };

/** No setting of the service goes in: it has keys in it. One thread, as the other processors are for the event loops. */
const environment = (): NodeJS.ProcessEnv => ({
  OMP_NUM_THREADS: '1',
  UV_THREADPOOL_SIZE: '2',
  MALLOC_ARENA_MAX: '2',
  ...(process.env['NODE_COMPILE_CACHE'] && { NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'] }),
});

/** One life of the process with the native engine: resolves once that has loaded the model. */
export const startEngine = async (folder: string, signal: AbortSignal) => {
  const child: ChildProcess = fork(PROGRAM, [folder], {
    serialization: 'advanced',
    execArgv: FLAGS,
    env: environment(),
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  });
  const waiting = new Map<number, Waiting>();
  const ready = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<string>();
  let lastId = 0;
  let told: string | null = null;

  const end = (reason: string): void => {
    told ??= reason;
    child.kill('SIGKILL');
  };
  const gone = (reason: string): void => {
    const error = new SourceError(reason);
    for (const { reject, timer } of waiting.values()) {
      clearTimeout(timer);
      reject(error);
    }
    waiting.clear();
    ready.reject(error);
    ended.resolve(reason);
  };
  child.on('error', (cause) => {
    end(`its process could not be started (${(cause as NodeJS.ErrnoException).code ?? cause.message})`);
    if (child.pid === undefined) gone(told ?? '');
  });
  child.on('exit', (code, signal) => gone(told ?? `its process ended by ${signal ?? `itself with status ${code}`}`));

  const settle = (id: number, act: (one: Waiting) => void): void => {
    const one = waiting.get(id);
    if (!one) return;
    waiting.delete(id);
    clearTimeout(one.timer);
    act(one);
  };
  child.on('message', (data) => {
    const { data: message, success } = FromEngine.safeParse(data);
    if (!success) return end('its process spoke another protocol');
    if (message.type === 'ready') ready.resolve();
    else if (message.type === 'unusable') end(message.reason);
    else if (message.type === 'failed')
      settle(message.id, ({ reject }) => reject(new SourceError('the engine failed')));
    else settle(message.id, ({ resolve }) => resolve(message.vector));
  });

  const embed = (text: string, kind: TextKind): Promise<Float32Array> =>
    new Promise((resolve, reject) => {
      if (!child.connected) return reject(new SourceError('its process is gone'));
      lastId += 1;
      const timer = setTimeout(() => end('its process did not answer in time'), ANSWER_MS);
      waiting.set(lastId, { resolve, reject, timer });
      const message: ToEngine = { id: lastId, text, isQuery: kind === 'query' };
      child.send(message, (cause) => cause && end('its process does not listen'));
    });

  const starting = setTimeout(() => end('its process did not start in time'), START_MS);
  const stop = (): void => end('closed');
  signal.addEventListener('abort', stop, { once: true });
  if (signal.aborted) stop();
  void ended.promise.then(() => signal.removeEventListener('abort', stop));
  try {
    await ready.promise;
  } finally {
    clearTimeout(starting);
  }
  return { embed, ended: ended.promise, end };
};
