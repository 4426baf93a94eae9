import { type ChildProcess, fork } from 'node:child_process';
import { constants, setPriority } from 'node:os';
import { join } from 'node:path';
import { ApiError, type ErrorDetail, invalid, unavailable } from '../../platform/process/errors.ts';
import { withDeadline } from '../../platform/process/deadline.ts';
import { createPacedSlots } from '../../platform/process/paced-slots.ts';
import { oneEach } from '../../platform/process/slots.ts';
import { type KnowledgeFormat, type ParsedKnowledge, parseKnowledge } from './import.ts';

/** A file of at most this size is read in this process. A hostile file of 8 KiB held the event loop for 49 ms. */
const INLINE_MAX_CHARS = 1024;
const READ_WITHIN_MS = 20_000;
const MEMORY_MB = 256;

export type File = { format: KnowledgeFormat; text: string };
/** The reader's answer to a request for more rows: the next part of the result, or why the whole file was refused. */
export type Part = (ParsedKnowledge & { ended: boolean }) | { details: ErrorDetail[] };

const PROGRAM = join(import.meta.dirname, 'reader.ts');
const FLAGS = [`--max-old-space-size=${MEMORY_MB}`, '--max-semi-space-size=8'];

const tooMuchWork = () =>
  invalid('file', 'out_of_range', 'takes too much time or memory to read: split it into smaller files');

/** A reader whose memory is used up is ended by a signal, and so without a status. */
const whyEnded = (status: number | null): Error =>
  status === null ? tooMuchWork() : new Error(`the reader of knowledge ended with status ${status}`);

const collect = (reader: ChildProcess, file: File): Promise<ParsedKnowledge> =>
  new Promise((resolve, reject) => {
    const entries: ParsedKnowledge['entries'] = [];
    reader.on('error', reject);
    reader.once('exit', (status) => reject(whyEnded(status)));
    reader.on('message', (part: Part) => {
      if ('details' in part) return reject(new ApiError('validation_failed', { details: part.details }));
      entries.push(...part.entries);
      if (part.ended) resolve({ entries, refused: part.refused });
      else reader.send('more');
    });
    reader.send(file);
  });

type Leaving = { signal?: AbortSignal };

/**
 * For whom a file is read. `tenant`: whose turn it is. `work`: is told the reading, without the wait for it, so that
 * whoever lets it take long delays others less.
 */
export type ReadFor = Leaving & {
  assistantId: string;
  tenant: string;
  work: <Value>(reading: Promise<Value>) => Promise<Value>;
};

/**
 * Reads a file in a process of its own, because a hostile file of 4 MiB needs more than half a GB, and V8 ends the
 * whole process if one of its threads has no memory left. The process gets none of the settings, which contain keys.
 */
const readInProcess = async (file: File, leaving: Leaving): Promise<ParsedKnowledge> => {
  const cache = process.env['NODE_COMPILE_CACHE'];
  const reader = fork(PROGRAM, {
    serialization: 'advanced',
    execArgv: FLAGS,
    env: cache === undefined ? {} : { NODE_COMPILE_CACHE: cache },
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  });
  // Turns go first: its start alone takes a core for half a second. Somebody waits for it, so it is not the lowest.
  if (reader.pid !== undefined) setPriority(reader.pid, constants.priority.PRIORITY_BELOW_NORMAL);
  try {
    return await withDeadline(collect(reader, file), READ_WITHIN_MS, { late: tooMuchWork, ...leaving });
  } finally {
    reader.kill('SIGKILL');
  }
};

/**
 * Files are read by two processes at a time, because these share the processor cores with turns. Assistants take turns,
 * and one whose file takes longer is slow, or hangs. All that are slow share one of the two, so that others do not wait
 * for files that take as long as they may.
 */
const READERS = 2;
const READS = { slowMs: 2_000, hangsMs: 8_000 };
const readers = createPacedSlots({ ...READS, total: READERS, shareOf: oneEach, leastTimeFirst: true });

/**
 * The same as `parseKnowledge`, but a large file is read in another process, so that other requests are not delayed.
 * When the caller leaves, the process and the text are dropped, so that nobody fills the memory with waiting files.
 */
export const readKnowledge = async (
  format: KnowledgeFormat,
  text: string,
  { assistantId, tenant, work, ...leaving }: ReadFor,
): Promise<ParsedKnowledge> => {
  if (text.length <= INLINE_MAX_CHARS) return parseKnowledge(format, text);
  const slot = await readers.acquire(assistantId, { tenant, ...leaving });
  if (!slot) throw unavailable();
  try {
    return await readers.watch(assistantId, work(readInProcess({ format, text }, leaving)));
  } finally {
    slot.release();
  }
};
