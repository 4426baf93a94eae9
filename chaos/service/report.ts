import { row } from '../support/table.ts';
import type { Evidence } from './evidence.ts';
import type { Histories, Sent, Violation } from './history.ts';
import { REFUSAL_RULE } from './rule-of-refusals.ts';
import { EVENT_RULES } from './rules-of-events.ts';
import { TURN_RULES } from './rules-of-turns.ts';
import { SOURCE_RULE } from './sources.ts';

const SHOWN = 12;

export const OTHER_RULES = [
  'everything converges within a minute',
  'nothing of an erased conversation is left',
  'processes end only when they are told to',
  'signatures are valid',
  SOURCE_RULE,
] as const;

type Judged = { seed: number; histories: Histories; evidence: Evidence; violations: Violation[] };
export type Result = Judged & { minutes: number; faults: Map<string, number> };

/** The attempts in order, equal ones counted: `503 unavailable × 4 | 200`. */
const attemptsOf = ({ attempts }: Sent): string =>
  attempts
    .map(({ result }) => result.replace(/ after [\d.]+ s$/, ''))
    .reduce<[string, number][]>((runs, result) => {
      const last = runs.at(-1);
      if (last?.[0] === result) last[1] += 1;
      else runs.push([result, 1]);
      return runs;
    }, [])
    .map(([result, count]) => (count === 1 ? result : `${result} × ${count}`))
    .join(' | ');

/** Prints the messages of one session and what was told about them, so that a violation can be understood. */
const printHistory = ({ histories, evidence, seed }: Judged, { session, rule, what }: Violation): void => {
  console.log(`\n${rule}: ${what}\n  session ${session}, seed ${seed}`);
  const quoted = what.split('"')[1];
  const sent = histories.sent.filter((one) => one.session === session);
  const at = Math.max(
    0,
    sent.findIndex(({ message }) => message === quoted),
  );
  for (const one of sent.slice(Math.max(0, at - SHOWN / 2), at + SHOWN / 2)) {
    const [from, to] = [one.startedAt, one.endedAt].map((ms) => (ms / 1000).toFixed(2));
    console.log(`  ${from}–${to} s  ${one.way}  "${one.message}"  ${attemptsOf(one)}  ${one.told?.messageId ?? '-'}`);
  }
  for (const { action, status, at: ms } of histories.acted.filter((one) => one.session === session).slice(-SHOWN)) {
    console.log(`  ${(ms / 1000).toFixed(2)} s  ${action}: ${status}`);
  }
  const stored = evidence.stored.get(session) ?? [];
  const near = stored.findIndex(({ content }) => content === quoted);
  for (const { seq, role, content, turnId } of stored.slice(Math.max(0, near - 4), near + SHOWN)) {
    console.log(`  stored ${seq}  ${role}  "${content.slice(0, 60)}"  ${turnId ?? ''}`);
  }
};

/** The longest time, in s, in which no visitor got a reply. */
const longestGap = ({ sent }: Histories): number => {
  const times = sent.filter((one) => one.told).map(({ endedAt }) => endedAt);
  const sorted = times.toSorted((a, b) => a - b);
  return Math.max(0, ...sorted.map((at, index) => at - (sorted[index - 1] ?? at))) / 1000;
};

/** Prints each rule with its violations, and the first case of each violated rule. True if no rule was violated. */
export const printVerdicts = (result: Judged, more: readonly string[] = []): boolean => {
  const { violations } = result;
  console.log('');
  const byRule = Map.groupBy(violations, ({ rule }) => rule);
  for (const rule of [...more, ...TURN_RULES, REFUSAL_RULE, ...EVENT_RULES, ...OTHER_RULES]) {
    const count = byRule.get(rule)?.length ?? 0;
    console.log(`${row(rule, count)}  ${count === 0 ? 'ok' : 'VIOLATED'}`);
  }
  for (const [, [first]] of byRule) if (first) printHistory(result, first);
  return violations.length === 0;
};

/** Prints the figures of a run and its violations. Returns true if no rule was broken. */
export const report = (result: Result): boolean => {
  const { faults, histories, evidence, minutes } = result;
  const total = [...faults.values()].reduce((sum, count) => sum + count, 0);
  const told = histories.sent.filter((one) => one.told).length;
  const unknown = evidence.deliveries.filter(({ outcome }) => outcome === 'unknown').length;
  console.log('');
  console.log(row('minutes', minutes.toFixed(1)));
  console.log(row('faults', total));
  for (const [name, count] of [...faults].toSorted()) console.log(row(`  ${name}`, count));
  console.log(row('sessions', histories.sessions.size));
  console.log(row('messages sent', histories.sent.length));
  console.log(row('  answered', told));
  console.log(row('  given up, so stored or not', histories.sent.length - told));
  console.log(
    row(
      'attempts that failed and were repeated',
      histories.sent.reduce((sum, one) => sum + one.attempts.length - 1, 0),
    ),
  );
  console.log(row('longest time without a reply to anybody, s', longestGap(histories).toFixed(1)));
  console.log(row('actions of operators', histories.acted.length));
  console.log(row('deliveries', evidence.deliveries.length));
  console.log(row('  unknown', unknown));
  console.log(row('s from the last fault until all had ended', (evidence.convergedMs / 1000).toFixed(1)));
  return printVerdicts(result);
};
