import { isMainThread, Worker, workerData } from 'node:worker_threads';
import { MEMORY_SIGNAL, type ReadFailure, type ReadRequest, type ReadResponse } from './reading.ts';

// The process that reads. Its second thread watches it, because a parser that never returns lets nothing else run in the first.

const WATCH_MS = 50;

type Watched = { memoryMb: number; parent: number };

const watch = ({ memoryMb, parent }: Watched): void => {
  setInterval(() => {
    // A parent that was killed stops nobody. Without this a parser would go on for ever.
    if (process.ppid !== parent) process.kill(process.pid, 'SIGKILL');
    else if (process.memoryUsage.rss() > memoryMb * 1e6) process.kill(process.pid, MEMORY_SIGNAL);
  }, WATCH_MS);
};

const toFailure = (isMemory: boolean, known: ReadFailure | null): ReadFailure => {
  if (known) return known;
  const failed = isMemory ? 'too_much_memory' : 'damaged';
  const what = isMemory ? 'Reading this document took too much memory.' : 'This document cannot be read.';
  return { failed, message: `${what} Save it as Markdown or plain text, and add it again.` };
};

const serve = async (memoryMb: number): Promise<void> => {
  const watched: Watched = { memoryMb, parent: process.ppid };
  new Worker(new URL(import.meta.url), { workerData: watched, resourceLimits: { maxOldGenerationSizeMb: 16 } }).unref();
  const { isOfMemory, readDocument } = await import('./read.ts');
  const { Unreadable } = await import('./text.ts');
  const reply = (response: ReadResponse): void => void process.send?.(response);
  process.on('disconnect', () => process.exit());
  process.on('message', ({ read }: ReadRequest) => {
    readDocument(read).then(
      (page) => reply({ page, memory: process.memoryUsage.rss() }),
      (cause: unknown) => {
        const known = cause instanceof Unreadable ? { failed: cause.failed, message: cause.message } : null;
        reply({ failure: toFailure(isOfMemory(cause), known), memory: process.memoryUsage.rss() });
      },
    );
  });
  process.send?.('started');
};

if (isMainThread) await serve(Number(process.argv[2]));
else watch(workerData as Watched); // given by `serve`
