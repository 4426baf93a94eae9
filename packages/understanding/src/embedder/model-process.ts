import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import * as z from 'zod';
import type { ModelCalibration } from '../calibration.ts';
import {
  CHOSEN,
  type Embedded,
  type EmbeddedKind,
  type ModelBackend,
  ModelError,
  type ModelStatus,
  normalised,
  type OpenModel,
} from './backend.ts';
import { TOKEN_DIMENSIONS } from './token-vectors.ts';

/** Gets one line when the model becomes available or unavailable. A line never contains a visitor's text. */
export type EmbedderLog = Record<'info' | 'warn', (line: object, text: string) => void>;

const FIRST_BACKOFF_MS = 200;
const MAX_BACKOFF_MS = 60_000;
/** A model that has worked for this long counts as stable, so the next restart waits only the shortest backoff. */
const STABLE_AFTER_MS = 30_000;

const reasonOf = (cause: unknown): string =>
  cause instanceof ModelError ? cause.message : `an internal error: ${(cause as Error).name}`;

/**
 * Keeps a model open: reopens the model with backoff whenever it ends. While no model is open, `embed` returns null.
 */
export const createSupervisedModel = (kind: ModelBackend, log: EmbedderLog) => {
  let open: OpenModel | null = null;
  let calibration: ModelCalibration | null = null;
  let reason = 'starting';
  let lastLogged = '';
  const closing = new AbortController();
  const firstTryEnded = Promise.withResolvers<void>();

  const logStatus = (available: boolean, detail: string): void => {
    if (detail === lastLogged) return; // the same reason is logged once, not at each try
    lastLogged = detail;
    if (available) log.info({ model: detail }, 'semantic search is available');
    else log.warn({ reason: detail }, 'semantic search is not available: lexical answers stand');
  };

  /** Opens the model and waits until the model ends. Resolves with the reason for the end. */
  const runOnce = async (): Promise<string> => {
    try {
      const opened = await kind.open(closing.signal);
      open = opened;
      calibration = opened.calibration ?? null;
      logStatus(true, opened.model);
      firstTryEnded.resolve();
      return await opened.ended;
    } catch (cause) {
      return reasonOf(cause);
    } finally {
      open = null;
    }
  };

  const keepOpen = async (): Promise<void> => {
    let backoffMs = FIRST_BACKOFF_MS;
    while (!closing.signal.aborted) {
      const since = performance.now();
      reason = await runOnce();
      if (closing.signal.aborted) return;
      logStatus(false, reason);
      firstTryEnded.resolve();
      backoffMs =
        performance.now() - since > STABLE_AFTER_MS ? FIRST_BACKOFF_MS : Math.min(backoffMs * 2, MAX_BACKOFF_MS);
      await sleep(backoffMs / 2, undefined, { signal: closing.signal }).catch(() => undefined);
    }
  };
  const running = keepOpen();

  const checked = (answers: (Embedded | null)[], count: number, dimensions: number): (Embedded | null)[] => {
    if (answers.length !== count) throw new ModelError('the model gave another number of vectors than texts');
    const isChanged = (one: Embedded | null): boolean =>
      one !== null && (one.vector.length !== dimensions || (one.tokens?.length ?? 0) % TOKEN_DIMENSIONS !== 0);
    if (answers.some(isChanged)) throw new ModelError('the model changed the length of its vectors');
    return answers.map((one) => one && { ...one, vector: normalised(one.vector) });
  };

  const askFor = async (used: OpenModel, texts: string[], textKind: EmbeddedKind, tokens: boolean) => {
    const { withTokens } = used;
    if (tokens) return withTokens ? Promise.all(texts.map((text) => withTokens.embed(text, textKind))) : null;
    const vectors = await used.embed(texts, textKind);
    return vectors.map((vector) => vector && { vector });
  };

  return {
    limits: kind.limits,
    /** Resolves when the first try has ended, with or without success. */
    firstTry: firstTryEnded.promise,
    model: (): string | null => open?.model ?? null,
    /** Of the model that was open last, because its vectors may still be compared after its end. */
    calibration: (): ModelCalibration | null => calibration,
    status: (): ModelStatus => ({ available: open !== null, detail: open?.model ?? reason }),

    /** The kind of the vectors of tokens. Null if there are none. */
    tokenKind: (): string | null => open?.withTokens?.kind ?? null,

    embed: async (texts: string[], textKind: EmbeddedKind, tokens: boolean): Promise<(Embedded | null)[] | null> => {
      const used = open;
      if (!used) return null;
      const answers = await askFor(used, texts, textKind, tokens).catch(() => null);
      if (!answers) return null;
      try {
        return checked(answers, texts.length, used.dimensions);
      } catch (cause) {
        used.end(reasonOf(cause));
        return null;
      }
    },

    close: async (): Promise<void> => {
      reason = 'closed';
      closing.abort();
      open?.end('closed');
      await running;
      firstTryEnded.resolve();
    },
  };
};

export type SupervisedModel = ReturnType<typeof createSupervisedModel>;

/** A request to the model process. The process does not validate it, because both sides come from the same release. */
export type ModelRequest = { id: number; text: string; isQuery: boolean; withTokens: boolean };

/** A message from the model process. The worker validates it, because native code runs in that process. */
const ModelMessage = z.discriminatedUnion('type', [
  z.object({ type: z.literal('ready'), model: z.string(), tokenKind: z.string().nullable() }),
  z.object({ type: z.literal('unusable'), reason: z.string() }),
  z.object({
    type: z.literal('vector'),
    id: z.int(),
    vector: z.instanceof(Float32Array),
    tokens: z.instanceof(Int8Array).optional(),
  }),
  z.object({ type: z.literal('failed'), id: z.int() }),
]);
export type ModelMessage = z.infer<typeof ModelMessage>;

const PROGRAM = join(import.meta.dirname, 'model-process-main.ts');
/**
 * Small heaps are enough, because nearly all memory of the process is outside of them: the model and its vocabulary. The
 * tokenizer of a chosen model holds a vocabulary of 250,000 pieces as objects.
 */
const FLAGS = ['--max-semi-space-size=1', '--v8-pool-size=1'];
const HEAP_MB = { local: 64, chosen: 1_024 };
const START_MS = { local: 20_000, chosen: 60_000 };
/** A piece takes 0.03 s, and a few times as long under load. A process that takes longer than this counts as hanging. */
const ANSWER_MS = 5_000;

type PendingRequest = {
  resolve: (answer: Embedded) => void;
  reject: (cause: Error) => void;
  timer: NodeJS.Timeout;
};

/** The service's settings contain keys, so none of them are passed to the model process. */
const environment = (): NodeJS.ProcessEnv => ({
  MALLOC_ARENA_MAX: '2',
  ...(process.env['NODE_COMPILE_CACHE'] && { NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'] }),
});

/** Starts the model process. Resolves when the process has loaded the model. `isChosen`: the operator has chosen the folder. */
export const startModelProcess = async (folder: string, signal: AbortSignal, isChosen = false) => {
  const child: ChildProcess = fork(PROGRAM, [folder, ...(isChosen ? [CHOSEN] : [])], {
    serialization: 'advanced',
    execArgv: [...FLAGS, `--max-old-space-size=${isChosen ? HEAP_MB.chosen : HEAP_MB.local}`],
    env: environment(),
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  });
  const pending = new Map<number, PendingRequest>();
  const ready = Promise.withResolvers<{ model: string; tokenKind: string | null }>();
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
    if (message.type === 'ready') ready.resolve(message);
    else if (message.type === 'unusable') end(message.reason);
    else if (message.type === 'failed')
      complete(message.id, ({ reject }) => reject(new ModelError('the model failed')));
    else complete(message.id, ({ resolve }) => resolve(message));
  });

  const embed = (text: string, kind: EmbeddedKind, withTokens = false): Promise<Embedded> =>
    new Promise((resolve, reject) => {
      if (!child.connected) return reject(new ModelError('its process is gone'));
      lastId += 1;
      const timer = setTimeout(() => end('its process did not answer in time'), ANSWER_MS);
      pending.set(lastId, { resolve, reject, timer });
      const message: ModelRequest = { id: lastId, text, isQuery: kind === 'query', withTokens };
      child.send(message, (cause) => cause && end('its process does not listen'));
    });

  const starting = setTimeout(
    () => end('its process did not start in time'),
    isChosen ? START_MS.chosen : START_MS.local,
  );
  const stop = (): void => end('closed');
  signal.addEventListener('abort', stop, { once: true });
  if (signal.aborted) stop();
  void ended.promise.then(() => signal.removeEventListener('abort', stop));
  try {
    const { model, tokenKind } = await ready.promise;
    return { embed, ended: ended.promise, end, model, tokenKind };
  } finally {
    clearTimeout(starting);
  }
};
