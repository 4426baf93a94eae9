import { parentPort, workerData } from 'node:worker_threads';
import { ApiError } from '../../process/errors.ts';
import { type KnowledgeFormat, parseKnowledge } from '../knowledge-import.ts';
import type { Part } from '../knowledge-reading.ts';

// The main module of a thread that reads one file. The thread returns one part of the result for each request.

const IN_A_PART = 500;

function* read({ format, text }: { format: KnowledgeFormat; text: string }): Generator<Part> {
  try {
    const { entries, refused } = parseKnowledge(format, text);
    for (let from = 0; from < entries.length; from += IN_A_PART) {
      yield { entries: entries.slice(from, from + IN_A_PART), refused: [], ended: false };
    }
    yield { entries: [], refused, ended: true };
  } catch (cause) {
    if (!(cause instanceof ApiError)) throw cause;
    yield { details: cause.details };
  }
}

const parts = read(workerData as Parameters<typeof read>[0]);
// oxlint-disable-next-line unicorn/require-post-message-target-origin -- the rule is for browser windows; a worker thread has no origin
parentPort?.on('message', () => parentPort?.postMessage(parts.next().value));
