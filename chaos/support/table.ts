const WHAT_WIDTH = 60;
const VALUE_WIDTH = 9;

/** One line of the figures of a run. */
export const row = (what: string, value: number | string): string =>
  `${what.padEnd(WHAT_WIDTH)} ${String(value).padStart(VALUE_WIDTH)}`;

/** A rule that a run was judged by. `found` is what was measured or counted. */
export type Verdict = { rule: string; found: number | string; kept: boolean };

/** Prints the verdicts. Returns true if every rule was kept. */
export const printVerdicts = (verdicts: Verdict[]): boolean => {
  for (const { rule, found, kept } of verdicts) console.log(`${row(rule, found)}  ${kept ? 'ok' : 'VIOLATED'}`);
  return verdicts.every(({ kept }) => kept);
};
