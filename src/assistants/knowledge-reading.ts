import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { ApiError, type ErrorDetail, invalid, unavailable } from '../process/errors.ts';
import { withDeadline } from '../process/deadline.ts';
import { createSlots } from '../process/slots.ts';
import { type KnowledgeFormat, type ParsedKnowledge, parseKnowledge } from './knowledge-import.ts';

/** A file of this size is read directly. A hostile one of 8 KiB held the event loop for 49 ms. */
const INLINE_MAX_CHARS = 1024;
const READ_WITHIN_MS = 20_000;
const MEMORY_MB = 512;

/** The thread's answer to a request for more rows: the next part of the result, or why the whole file was refused. */
export type Part = (ParsedKnowledge & { ended: boolean }) | { details: ErrorDetail[] };

const tooMuchWork = () =>
  invalid('file', 'out_of_range', 'takes too much time or memory to read: split it into smaller files');

const collect = async (thread: Worker): Promise<ParsedKnowledge> => {
  const entries: ParsedKnowledge['entries'] = [];
  for (;;) {
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- the rule is for browser windows; a worker thread has no origin
    thread.postMessage('more');
    const [part] = (await once(thread, 'message')) as [Part];
    if ('details' in part) throw new ApiError('validation_failed', { details: part.details });
    entries.push(...part.entries);
    if (part.ended) return { entries, refused: part.refused };
  }
};

const readInThread = async (format: KnowledgeFormat, text: string): Promise<ParsedKnowledge> => {
  const thread = new Worker(new URL('./knowledge-import/thread.ts', import.meta.url), {
    workerData: { format, text },
    resourceLimits: { maxOldGenerationSizeMb: MEMORY_MB },
  });
  // `once` handles errors while an answer is pending. This listener handles errors at all other times. Without it, such
  // an error would end the process.
  thread.on('error', () => undefined);
  try {
    return await withDeadline(collect(thread), READ_WITHIN_MS, { late: tooMuchWork });
  } catch (cause) {
    throw (cause as NodeJS.ErrnoException).code === 'ERR_WORKER_OUT_OF_MEMORY' ? tooMuchWork() : cause;
  } finally {
    await thread.terminate();
  }
};

/**
 * Files are read by one thread at a time, because the thread shares the processor cores with turns. Assistants take
 * turns, so that many files of one do not delay another's.
 */
const threads = createSlots(({ inUse }) => inUse < 1);

/** The same as `parseKnowledge`, but a large file is read in a thread, so that other requests are not delayed. */
export const readKnowledge = async (
  format: KnowledgeFormat,
  text: string,
  { assistantId, signal }: { assistantId: string; signal?: AbortSignal },
): Promise<ParsedKnowledge> => {
  if (text.length <= INLINE_MAX_CHARS) return parseKnowledge(format, text);
  const slot = await threads.acquire(assistantId);
  if (!slot) throw unavailable();
  try {
    signal?.throwIfAborted();
    return await readInThread(format, text);
  } finally {
    slot.release();
  }
};
