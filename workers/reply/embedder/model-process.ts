import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { ModelError, type TextKind } from './backend.ts';
import { ModelMessage, type ModelRequest } from './model-message.ts';

const PROGRAM = join(import.meta.dirname, 'model-process-main.ts');
/** Small heaps are enough, because nearly all memory of the process is the model, which is mapped from its file. */
const FLAGS = ['--max-old-space-size=64', '--max-semi-space-size=1', '--v8-pool-size=1'];
const START_MS = 20_000;
/**
 * A piece takes 0.2 s, and a few times as long under load. A process that takes longer than this limit counts as
 * hanging.
 */
const ANSWER_MS = 5_000;

type PendingRequest = {
  resolve: (vector: Float32Array) => void;
  reject: (cause: Error) => void;
  timer: NodeJS.Timeout;
};

/**
 * The service's settings contain keys, so none of them are passed to the model process. The model uses one thread, so
 * that the other processors stay free for the event loops.
 */
const environment = (): NodeJS.ProcessEnv => ({
  OMP_NUM_THREADS: '1',
  UV_THREADPOOL_SIZE: '2',
  MALLOC_ARENA_MAX: '2',
  ...(process.env['NODE_COMPILE_CACHE'] && { NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'] }),
});

/** Starts the model process. Resolves when the process has loaded the model. */
export const startModelProcess = async (folder: string, signal: AbortSignal) => {
  const child: ChildProcess = fork(PROGRAM, [folder], {
    serialization: 'advanced',
    execArgv: FLAGS,
    env: environment(),
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  });
  const pending = new Map<number, PendingRequest>();
  const ready = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<string>();
  let lastId = 0;
  let endReason: string | null = null;

  const end = (reason: string): void => {
    endReason ??= reason;
    child.kill('SIGKILL');
  };
  const failPending = (reason: string): void => {
    const error = new ModelError(reason);
    for (const { reject, timer } of pending.values()) {
      clearTimeout(timer);
      reject(error);
    }
    pending.clear();
    ready.reject(error);
    ended.resolve(reason);
  };
  child.on('error', (cause) => {
    end(`its process could not be started (${(cause as NodeJS.ErrnoException).code ?? cause.message})`);
    if (child.pid === undefined) failPending(endReason ?? '');
  });
  child.on('exit', (code, signal) =>
    failPending(endReason ?? `its process ended by ${signal ?? `itself with status ${code}`}`),
  );

  const complete = (id: number, act: (one: PendingRequest) => void): void => {
    const one = pending.get(id);
    if (!one) return;
    pending.delete(id);
    clearTimeout(one.timer);
    act(one);
  };
  child.on('message', (data) => {
    const { data: message, success } = ModelMessage.safeParse(data);
    if (!success) return end('its process spoke another protocol');
    if (message.type === 'ready') ready.resolve();
    else if (message.type === 'unusable') end(message.reason);
    else if (message.type === 'failed')
      complete(message.id, ({ reject }) => reject(new ModelError('the engine failed')));
    else complete(message.id, ({ resolve }) => resolve(message.vector));
  });

  const embed = (text: string, kind: TextKind): Promise<Float32Array> =>
    new Promise((resolve, reject) => {
      if (!child.connected) return reject(new ModelError('its process is gone'));
      lastId += 1;
      const timer = setTimeout(() => end('its process did not answer in time'), ANSWER_MS);
      pending.set(lastId, { resolve, reject, timer });
      const message: ModelRequest = { id: lastId, text, isQuery: kind === 'query' };
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
