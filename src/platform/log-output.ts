import { type DestinationStream, pino } from 'pino';

/**
 * Standard output for log lines. All lines of one turn of the event loop are sent in one write, because a write costs
 * more than formatting a line. When the process exits, the remaining lines are written.
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
    // pino calls this function after a fatal line.
    flushSync,
  };
};

let opened: ReturnType<typeof openLogOutput> | undefined;

/** The output that all loggers of this process share. */
export const logOutput = (): DestinationStream => (opened ??= openLogOutput());
