import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

export type ReadInput = {
  bytes: Uint8Array;
  contentType: string | null;
  /** Of the file, or empty. */
  name: string;
  url: string | null;
};

export type ReadPage = {
  title: string;
  language: string | null;
  /** Absolute, without a fragment. */
  canonical: string | null;
  /** Absolute http(s) addresses without fragments, each once, at most 5,000. Links that the page marks as `nofollow` are left out. */
  links: string[];
  /** What the page's robots meta says; the header is the fetcher's. */
  mayIndex: boolean;
  mayFollow: boolean;
  /** None if the page has nothing but links. */
  passages: { path: string[]; text: string; anchor: string | null }[];
  proposals: { question: string; answer: string; anchor: string | null }[];
};

export type ReadFailure = {
  failed: 'unsupported' | 'too_large' | 'too_slow' | 'damaged' | 'encrypted' | 'no_text' | 'too_much_memory';
  /** A sentence for the owner, which says what to do. */
  message: string;
};

export type Reader = {
  /** Reads one document after the other. Rejects only if `signal` aborts, the reader is closed, or no process can be started. */
  read: (input: ReadInput, signal?: AbortSignal) => Promise<ReadPage | ReadFailure>;
  close: () => Promise<void>;
};

export type ReaderOptions = {
  /** The memory of the reading process, with what its libraries use outside of the heap. */
  memoryMb?: number;
  /** How long one document may take. */
  timeoutMs?: number;
  /** The process ends after so long without work, and the next document starts another. */
  idleMs?: number;
};

/** What the parent and the reading process say to each other. */
export type ReadRequest = { read: ReadInput };
export type ReadResponse = { page: ReadPage; memory: number } | { failure: ReadFailure; memory: number };

export const MAX_FILE_BYTES = 20_000_000;
/** The reading process ends itself with this signal when it uses too much memory. */
export const MEMORY_SIGNAL = 'SIGUSR2';
const START_TIMEOUT_MS = 30_000;
/** The rest is for buffers of the libraries, and for the reserve that V8 takes before it gives up. */
const HEAP_SHARE = 0.6;
/** A process that keeps more than this share after a document is replaced, so that each document has its whole memory. */
const KEPT_SHARE = 0.5;

const ENTRY = fileURLToPath(new URL('./reading-process.ts', import.meta.url));

const FAILURES = {
  too_large: 'This document is larger than 20 MB. Split it into smaller ones.',
  too_slow: 'Reading this document took too long. Split it into smaller ones, or save it as Markdown or plain text.',
  too_much_memory:
    'Reading this document took too much memory. Split it into smaller ones, or save it as Markdown or plain text.',
  damaged:
    'This document cannot be read. Save it again from the program that made it, or save it as Markdown or plain text.',
} as const satisfies Partial<Record<ReadFailure['failed'], string>>;

const failure = (failed: keyof typeof FAILURES): ReadFailure => ({ failed, message: FAILURES[failed] });

type Ended = { code: number | null; signal: NodeJS.Signals | null };

/** V8 aborts when its heap is full. The kernel kills when the machine's memory is full. */
const failureOf = ({ code, signal }: Ended): ReadFailure => {
  const isMemory =
    signal === MEMORY_SIGNAL || signal === 'SIGABRT' || signal === 'SIGKILL' || signal === 'SIGTRAP' || code === 134;
  return failure(isMemory ? 'too_much_memory' : 'damaged');
};

/** A process that has started and waits for documents. */
type ReadingProcess = {
  child: ChildProcess;
  started: Promise<void>;
  ended: Promise<Ended>;
  hasEnded: () => boolean;
};

const startProcess = (memoryMb: number): ReadingProcess => {
  const child = fork(ENTRY, [String(memoryMb)], {
    // It reads files of strangers, so it knows no secrets and may change nothing.
    env: {},
    execArgv: [
      `--max-old-space-size=${Math.floor(memoryMb * HEAP_SHARE)}`,
      '--permission',
      '--allow-fs-read=*',
      '--allow-worker',
      '--no-warnings',
    ],
    serialization: 'advanced',
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  });
  let hasEnded = false;
  const ended = new Promise<Ended>((resolve) => {
    const end = (code: number | null, signal: NodeJS.Signals | null): void => {
      hasEnded = true;
      resolve({ code, signal });
    };
    child.once('exit', end);
    child.once('error', () => end(null, null));
  });
  const started = new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => {
      child.kill('SIGKILL');
      reject(new Error(`the reading process did not start within ${START_TIMEOUT_MS} ms`));
    }, START_TIMEOUT_MS);
    child.once('message', () => {
      clearTimeout(timer);
      resolve();
    });
    void ended.then(({ code, signal }) => {
      clearTimeout(timer);
      reject(new Error(`the reading process ended while it started (${signal ?? code})`));
    });
  });
  started.catch(() => undefined); // the document that waits for it hears of it
  return { child, started, ended, hasEnded: () => hasEnded };
};

/** Reads documents in a child process, one at a time. */
class ProcessReader implements Reader {
  private readonly memoryMb: number;
  private readonly timeoutMs: number;
  private readonly idleMs: number;
  private process: ReadingProcess | null = null;
  private idle: NodeJS.Timeout | undefined;
  private last: Promise<unknown> = Promise.resolve();
  private isClosed = false;

  constructor({ memoryMb = 512, timeoutMs = 30_000, idleMs = 30_000 }: ReaderOptions) {
    this.memoryMb = memoryMb;
    this.timeoutMs = timeoutMs;
    this.idleMs = idleMs;
  }

  read(input: ReadInput, signal?: AbortSignal): Promise<ReadPage | ReadFailure> {
    if (input.bytes.byteLength > MAX_FILE_BYTES) return Promise.resolve(failure('too_large'));
    const turn = this.last.then(() => this.readNext(input, signal));
    this.last = turn.catch(() => undefined);
    return turn;
  }

  async close(): Promise<void> {
    this.isClosed = true;
    clearTimeout(this.idle);
    await this.stop();
  }

  private async readNext(input: ReadInput, signal: AbortSignal | undefined): Promise<ReadPage | ReadFailure> {
    signal?.throwIfAborted();
    if (this.isClosed) throw new Error('the reader is closed');
    clearTimeout(this.idle);
    if (!this.process || this.process.hasEnded()) this.process = startProcess(this.memoryMb);
    const { process } = this;
    const abort = (): void => void process.child.kill('SIGKILL');
    signal?.addEventListener('abort', abort, { once: true });
    try {
      await process.started;
      const read = await this.ask(process, input);
      signal?.throwIfAborted();
      if (this.isClosed) throw new Error('the reader is closed');
      return read;
    } catch (cause) {
      signal?.throwIfAborted();
      throw cause;
    } finally {
      signal?.removeEventListener('abort', abort);
      if (!this.isClosed) this.idle = setTimeout(() => void this.stop(), this.idleMs).unref();
    }
  }

  private async ask({ child, ended }: ReadingProcess, input: ReadInput): Promise<ReadPage | ReadFailure> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<'late'>((resolve) => {
      timer = setTimeout(() => resolve('late'), this.timeoutMs);
    });
    const answered = new Promise<ReadResponse>((resolve) => {
      child.once('message', (response) => resolve(response as ReadResponse)); // our own process sends nothing else
    });
    // An error of sending means that the process has ended, which `ended` tells.
    child.send({ read: input } satisfies ReadRequest, () => undefined);
    try {
      const first = await Promise.race([answered, ended, late]);
      if (first === 'late') {
        await this.stop();
        return failure('too_slow');
      }
      if ('signal' in first) return failureOf(first);
      if (first.memory > this.memoryMb * 1e6 * KEPT_SHARE) await this.stop();
      return 'page' in first ? first.page : first.failure;
    } finally {
      clearTimeout(timer);
      child.removeAllListeners('message');
    }
  }

  private async stop(): Promise<void> {
    const { process } = this;
    this.process = null;
    if (!process || process.hasEnded()) return;
    process.child.kill('SIGKILL');
    await process.ended;
  }
}

/** Opens a reader. Its process starts with the first document, and another one after a failure. */
export const openReader = (options: ReaderOptions = {}): Reader => new ProcessReader(options);
