import { KINDS } from '../service/crew.ts';
import type { Evidence } from '../service/evidence.ts';
import type { Histories, Violation } from '../service/history.ts';
import { printVerdicts } from '../service/report.ts';
import { row } from '../support/table.ts';
import { ascending, quantile } from '../../test/kit/quantiles.ts';
import type { Requests } from './requests.ts';
import type { Stop } from './stops.ts';

const END_WITHIN_MS = 10_000;
/** Of the requests, while another process of each kind runs. A slow machine delays the balancer's checks a little. */
const UNLUCKY_SHARE = 0.01;
const SHOWN = 10;

/** Rules of this command. The rules of turns and events are those of the whole service. */
const STOP_RULES = [
  'every stop ends with 0 within 10 s',
  'no request is broken or fails',
  'few requests meet no process or get no reply in time',
  'every message is answered',
  'no delivery ends unknown',
] as const;

export type Result = {
  seed: number;
  rounds: number;
  /** The number of processes of each kind. */
  each: number;
  stops: Stop[];
  requests: Requests;
  histories: Histories;
  evidence: Evidence;
  violations: Violation[];
};

const totalOf = ({ counts }: Requests): number => [...counts.values()].reduce((sum, count) => sum + count, 0);

/** What the stops themselves did wrong. */
export const judgeStops = ({ each, stops, requests, histories, evidence }: Omit<Result, 'violations'>): Violation[] => {
  const found: Violation[] = [];
  const blame = (rule: (typeof STOP_RULES)[number], what: string, session = ''): void =>
    void found.push({ rule, session, what });
  const late = stops.filter(({ code, ms }) => code !== 0 || ms > END_WITHIN_MS);
  const isErased = (session: string): boolean => histories.sessions.get(session)?.erased === true;
  const untold = histories.sent.filter(({ told, session }) => !told && !isErased(session));
  const unknown = evidence.deliveries.filter(
    ({ outcome, errorKind }) => outcome === 'unknown' && errorKind !== 'erased',
  );
  for (const { kind, code, ms } of late)
    blame('every stop ends with 0 within 10 s', `${kind} ended with ${code} after ${Math.round(ms)} ms`);
  for (const what of requests.faulty) blame('no request is broken or fails', what);
  const unlucky = (requests.counts.get('no connection') ?? 0) + (requests.counts.get('not ready') ?? 0);
  if (each > 1 && unlucky > totalOf(requests) * UNLUCKY_SHARE)
    blame('few requests meet no process or get no reply in time', `${unlucky} of ${totalOf(requests)} requests`);
  for (const { session, message } of untold) blame('every message is answered', `"${message}" has no answer`, session);
  for (const { eventId, errorKind } of unknown)
    blame('no delivery ends unknown', `${eventId} ended unknown (${errorKind})`);
  return found;
};

const seconds = (ms: number | undefined): string => ((ms ?? Number.NaN) / 1000).toFixed(2);

const printTimes = (what: string, times: number[]): void => {
  const sorted = ascending(times);
  console.log(row(`${what}, s: p50`, seconds(quantile(sorted, 0.5))));
  console.log(row(`${what}, s: longest`, seconds(sorted.at(-1))));
};

/** Prints the figures of a run and its violations. Returns true if no rule was broken. */
export const reportStops = (result: Result): boolean => {
  const { rounds, stops, requests, histories, evidence } = result;
  const retried = histories.sent.filter(({ attempts }) => attempts.length > 1);
  console.log('');
  console.log(row('rolling restarts of all processes', rounds));
  console.log(row('stops', stops.length));
  for (const kind of KINDS)
    printTimes(
      `  ${kind}`,
      stops.filter((stop) => stop.kind === kind).map(({ ms }) => ms),
    );
  console.log(row('requests', totalOf(requests)));
  for (const [end, count] of requests.counts) console.log(row(`  ${end}`, count));
  console.log(row('messages sent', histories.sent.length));
  console.log(row('  answered', histories.sent.filter(({ told }) => told).length));
  console.log(row('  sent more than once', retried.length));
  printTimes(
    '  until the answer',
    histories.sent.flatMap(({ told, startedAt, endedAt }) => (told ? [endedAt - startedAt] : [])),
  );
  console.log(row('deliveries', evidence.deliveries.length));
  console.log(row('s from the last stop until all had ended', (evidence.convergedMs / 1000).toFixed(1)));
  for (const what of requests.faulty.slice(0, SHOWN)) console.log(`  ${what}`);
  return printVerdicts(result, STOP_RULES);
};
