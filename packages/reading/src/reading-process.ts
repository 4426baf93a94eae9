import { constants, setPriority } from 'node:os';
import { isMainThread, Worker, workerData } from 'node:worker_threads';
import { MEMORY_SIGNAL, type ReadFailure, type ReadRequest, type ReadResponse, TIME_SIGNAL } from './reading.ts';

// The process that reads. Its second thread watches it, because a parser that never returns lets nothing else run in the first.

const WATCH_MS = 50;
/** A process that still holds more than this share of its memory after a document is replaced by a new one. */
const KEPT_SHARE = 0.5;

/** `until` is the processor time at which the document's time is over. */
type Watched = { memoryMb: number; parent: number; until: Float64Array };

const processorMs = (): number => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};

const watch = ({ memoryMb, parent, until }: Watched): void => {
  setInterval(() => {
    // A killed parent cannot stop this process. Without this check, a parser could run for ever.
    if (process.ppid !== parent) process.kill(process.pid, 'SIGKILL');
    else if (process.memoryUsage.rss() > memoryMb * 1e6) process.kill(process.pid, MEMORY_SIGNAL);
    else if (processorMs() > (until[0] ?? 0)) process.kill(process.pid, TIME_SIGNAL);
  }, WATCH_MS);
};

const toFailure = (isMemory: boolean, known: ReadFailure | null): ReadFailure => {
  if (known) return known;
  const failed = isMemory ? 'too_much_memory' : 'damaged';
  const what = isMemory ? 'Reading this document took too much memory.' : 'This document cannot be read.';
  return { failed, message: `${what} Save it as Markdown or plain text, and add it again` };
};

const serve = async (memoryMb: number, timeoutMs: number): Promise<void> => {
  setPriority(constants.priority.PRIORITY_LOW); // whatever the parent's is: nobody waits for a document
  const until = new Float64Array(new SharedArrayBuffer(8)).fill(Infinity);
  const watched: Watched = { memoryMb, parent: process.ppid, until };
  new Worker(new URL(import.meta.url), { workerData: watched, resourceLimits: { maxOldGenerationSizeMb: 16 } }).unref();
  const { readDocument } = await import('./read.ts');
  const { isOfMemory, Unreadable } = await import('./text.ts');
  const reply = (response: Pick<ReadResponse, 'read'>): void => {
    until[0] = Infinity;
    const isTight = process.memoryUsage.rss() > memoryMb * 1e6 * KEPT_SHARE;
    if (isTight) globalThis.gc?.();
    process.send?.({
      ...response,
      isTight: isTight && process.memoryUsage.rss() > memoryMb * 1e6 * KEPT_SHARE,
    } satisfies ReadResponse);
  };
  process.on('disconnect', () => process.exit());
  process.on('message', ({ read }: ReadRequest) => {
    until[0] = processorMs() + timeoutMs;
    readDocument(read).then(
      (page) => reply({ read: page }),
      (cause: unknown) => {
        const known = cause instanceof Unreadable ? { failed: cause.failed, message: cause.message } : null;
        reply({ read: toFailure(isOfMemory(cause), known) });
      },
    );
  });
  process.send?.('started');
};

if (isMainThread) await serve(Number(process.argv[2]), Number(process.argv[3]));
else watch(workerData as Watched); // given by `serve`
