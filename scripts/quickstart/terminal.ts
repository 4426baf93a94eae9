const SHOW_EVERY_MS = 3000;

const since = (start: number): string => `${((performance.now() - start) / 1000).toFixed(1)} s`;

export type Terminal = {
  say: (line: string) => void;
  /** Prints lines without the prefix, so that they can be copied. */
  show: (lines: string[]) => void;
  /**
   * Runs a step. Then prints one line with its duration and a summary of its result. A slow step also shows its
   * progress.
   */
  step: <Result>(name: string, work: () => Promise<Result>, summarize: (result: Result) => string) => Promise<Result>;
};

/** Prints lines for the person at the terminal, in the format of the set-up. */
export const createTerminal = (stream: NodeJS.WritableStream): Terminal => {
  const write = (line: string): void => void stream.write(`${line}\n`);
  const say = (line: string): void => write(`quickstart  ${line}`);
  return {
    say,
    show: (lines) => lines.forEach(write),
    step: async (name, work, summarize) => {
      const start = performance.now();
      const progress = setInterval(() => write(`  … ${name}, ${since(start)}`), SHOW_EVERY_MS);
      try {
        const result = await work();
        say(`${name}: ${summarize(result)}, ${since(start)}`);
        return result;
      } finally {
        clearInterval(progress);
      }
    },
  };
};
