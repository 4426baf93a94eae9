import { type ChildProcess, fork } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export type ReadInput = {
  bytes: Uint8Array;
  contentType: string | null;
  /** The name of the file, or empty. */
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
  /** Where the page leads by itself within ten seconds (`<meta http-equiv="refresh">`). */
  refresh: string | null;
  /** What the page's robots meta says. The fetcher reads the robots header. */
  mayIndex: boolean;
  mayFollow: boolean;
  /** Empty if the page has only links. */
  passages: { path: string[]; text: string; anchor: string | null }[];
  proposals: { question: string; answer: string; anchor: string | null }[];
  /** A sentence for the owner about what could not be read. Null: the document was read whole. */
  lacks: string | null;
};

export type ReadFailure = {
  failed: 'unsupported' | 'too_large' | 'too_slow' | 'damaged' | 'encrypted' | 'no_text' | 'too_much_memory';
  /** A sentence for the owner, which says what to do. */
  message: string;
};

export type Reader = {
  /** Starts a process if none waits, which may take a second. The next document then takes only its own time. */
  start: () => Promise<void>;
  /** Reads one document after the other. Rejects only if `signal` aborts, the reader is closed, or no process can be started. */
  read: (input: ReadInput, signal?: AbortSignal) => Promise<ReadPage | ReadFailure>;
  close: () => Promise<void>;
};

type ReaderOptions = {
  /** The memory of the reading process, with what its libraries use outside of the heap. */
  memoryMb?: number;
  /** The processor time that one document may take. On a busy machine it may take ten times as long by the clock. */
  timeoutMs?: number;
  /** After this time without work the process ends. The next document starts a new one. */
  idleMs?: number;
};

/** What the parent and the reading process say to each other. */
export type ReadRequest = { read: ReadInput };
export type ReadResponse = { read: ReadPage | ReadFailure; isTight: boolean };

const MAX_FILE_BYTES = 20_000_000;
/** The reading process ends itself with this signal when it uses too much memory. */
export const MEMORY_SIGNAL = 'SIGUSR2';
/** The reading process ends itself with this signal when its processor time is over. */
export const TIME_SIGNAL = 'SIGXCPU';
const CLOCK_FACTOR = 10;
/** A start takes half a second of a core. A busy machine gives a process of the lowest priority a hundredth of one. */
const START_TIMEOUT_MS = 300_000;
/**
 * The heap's share of the memory. The rest is for buffers of the libraries, and for the reserve that V8 takes before it
 * gives up.
 */
const HEAP_SHARE = 0.6;

const ENTRY = fileURLToPath(new URL('./reading-process.ts', import.meta.url));

const FAILURES = {
  too_large: 'This document is larger than 20 MB. Split it into smaller ones',
  too_slow: 'Reading this document took too long. Split it into smaller ones, or save it as Markdown or plain text',
  too_much_memory:
    'Reading this document took too much memory. Split it into smaller ones, or save it as Markdown or plain text',
  damaged:
    'This document cannot be read. Save it again from the program that made it, or save it as Markdown or plain text',
} as const satisfies Partial<Record<ReadFailure['failed'], string>>;

const failure = (failed: keyof typeof FAILURES): ReadFailure => ({ failed, message: FAILURES[failed] });

type Ended = { code: number | null; signal: NodeJS.Signals | null };

/** V8 aborts when its heap is full. The kernel kills when the machine's memory is full. */
const failureOf = ({ code, signal }: Ended): ReadFailure => {
  if (signal === TIME_SIGNAL) return failure('too_slow');
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

const startProcess = (memoryMb: number, timeoutMs: number): ReadingProcess => {
  const child = fork(ENTRY, [String(memoryMb), String(timeoutMs)], {
    // It reads files of strangers, so it gets no secrets and is not allowed to write files.
    env: {},
    execArgv: [
      `--max-old-space-size=${Math.floor(memoryMb * HEAP_SHARE)}`,
      '--permission',
      '--allow-fs-read=*',
      '--allow-worker',
      '--expose-gc',
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
    child.once('exit', (code, signal) => {
      clearTimeout(timer);
      reject(new Error(`the reading process ended while it started (${signal ?? code})`));
    });
    child.once('error', reject);
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

  constructor({ memoryMb = 512, timeoutMs = 20_000, idleMs = 30_000 }: ReaderOptions) {
    this.memoryMb = memoryMb;
    this.timeoutMs = timeoutMs;
    this.idleMs = idleMs;
  }

  read(input: ReadInput, signal?: AbortSignal): Promise<ReadPage | ReadFailure> {
    if (input.bytes.byteLength > MAX_FILE_BYTES) return Promise.resolve(failure('too_large'));
    return this.inTurn(() => this.readNext(input, signal));
  }

  start(): Promise<void> {
    return this.inTurn(() => this.withProcess(async () => undefined));
  }

  async close(): Promise<void> {
    this.isClosed = true;
    clearTimeout(this.idle);
    await this.stop();
  }

  private inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    const turn = this.last.then(work);
    this.last = turn.catch(() => undefined);
    return turn;
  }

  private async withProcess<Result>(work: (process: ReadingProcess) => Promise<Result>): Promise<Result> {
    if (this.isClosed) throw new Error('the reader is closed');
    clearTimeout(this.idle);
    if (!this.process || this.process.hasEnded()) this.process = startProcess(this.memoryMb, this.timeoutMs);
    const { process } = this;
    try {
      await process.started;
      return await work(process);
    } finally {
      if (!this.isClosed) this.idle = setTimeout(() => void this.stop(), this.idleMs).unref();
    }
  }

  private async readNext(input: ReadInput, signal: AbortSignal | undefined): Promise<ReadPage | ReadFailure> {
    signal?.throwIfAborted();
    const abort = (): void => void this.process?.child.kill('SIGKILL');
    signal?.addEventListener('abort', abort, { once: true });
    try {
      const read = await this.withProcess((process) => this.ask(process, input));
      signal?.throwIfAborted();
      if (this.isClosed) throw new Error('the reader is closed');
      return read;
    } catch (cause) {
      signal?.throwIfAborted();
      throw cause;
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }

  /**
   * Listeners are used instead of a race of promises, because a promise that lives as long as the process would keep
   * every page.
   */
  private async ask({ child }: ReadingProcess, input: ReadInput): Promise<ReadPage | ReadFailure> {
    const { promise, resolve } = Promise.withResolvers<ReadResponse | Ended | 'late'>();
    const end = (code: number | null, signal: NodeJS.Signals | null): void => resolve({ code, signal });
    const answer = (response: unknown): void => resolve(response as ReadResponse); // our own process sends nothing else
    const timer = setTimeout(() => resolve('late'), this.timeoutMs * CLOCK_FACTOR);
    child.once('exit', end);
    child.once('message', answer);
    // A failed send is ignored: the process has ended then, and `end` is called.
    child.send({ read: input } satisfies ReadRequest, () => undefined);
    const first = await promise;
    clearTimeout(timer);
    child.off('exit', end);
    child.off('message', answer);
    if (first === 'late') {
      await this.stop();
      return failure('too_slow');
    }
    if ('signal' in first) return failureOf(first);
    if (first.isTight) await this.stop();
    return first.read;
  }

  private async stop(): Promise<void> {
    const { process } = this;
    this.process = null;
    if (!process || process.hasEnded()) return;
    process.child.kill('SIGKILL');
    await process.ended;
  }
}

/** Opens a reader. Its process starts with the first document. After a failure, the next document starts another. */
export const openReader = (options: ReaderOptions = {}): Reader => new ProcessReader(options);

/**
 * Another one if documents may be read differently: a hash of the code that reads and of the versions of its libraries. So
 * nobody has to remember to raise it.
 */
export const readerVersion = (folder = join(import.meta.dirname, '..')): string => {
  const code = readdirSync(join(folder, 'src'))
    .sort()
    .map((name) => join('src', name));
  const hash = createHash('sha256');
  for (const name of ['package.json', ...code]) hash.update(`${name}\n`).update(readFileSync(join(folder, name)));
  return hash.digest('base64url').slice(0, 8);
};
