const SHOW_EVERY_MS = 3000;

const since = (start: number): string => `${((performance.now() - start) / 1000).toFixed(1)} s`;

export type Terminal = {
  say: (line: string) => void;
  /** A block without the name in front, for what is to be read or copied. */
  show: (lines: string[]) => void;
  /** One line when it has ended: what `tell` makes of the result, and how long it took. A slow one shows that it lives. */
  step: <Result>(name: string, work: () => Promise<Result>, summarize: (result: Result) => string) => Promise<Result>;
};

/** Lines for the person at the keyboard, in the shape of the set-up's. */
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
