import { type DestinationStream, pino } from 'pino';

/**
 * Standard output for log lines. What is logged in one turn of the event loop is one write, since a write for each line costs
 * more than making the line. A process that ends writes what is left.
 */
const openLogOutput = (): DestinationStream & { flushSync: () => void } => {
  const output = pino.destination({ dest: 1, sync: true });
  let lines = '';
  const flushSync = (): void => {
    if (lines === '') return;
    const text = lines;
    lines = '';
    output.write(text);
  };
  process.on('exit', flushSync);
  return {
    write: (line) => {
      if (lines === '') setImmediate(flushSync);
      lines += line;
    },
    // pino calls this after a fatal line.
    flushSync,
  };
};

let opened: ReturnType<typeof openLogOutput> | undefined;

/** The one output of this process, which all its loggers share. */
export const logOutput = (): DestinationStream => (opened ??= openLogOutput());
