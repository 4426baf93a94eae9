import { ApiError } from '../../platform/process/errors.ts';
import { parseKnowledge } from './import.ts';
import type { File, Part } from './reading.ts';

// The process that reads one file, started by `reading.ts`. It returns one part of the result for each request.

const IN_A_PART = 500;

function* read({ format, text }: File): Generator<Part> {
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

let parts: Generator<Part> | undefined;
process.on('message', (asked: File | 'more') => {
  if (asked !== 'more') parts = read(asked);
  process.send?.(parts?.next().value);
});
process.on('disconnect', () => process.exit());
// These signals are ignored: Ctrl-C reaches the whole process group, but the API first finishes its requests.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined);
