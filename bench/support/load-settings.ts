import { launch } from '../../test/kit/processes.ts';

export type LoadSettings = {
  kind: 'chat' | 'bot';
  port: number;
  apiKey: string;
  /** Further keys. Requests take all keys in turn. */
  moreKeys?: string[];
  inFlight: number;
  /** Requests per second, independent of the responses. Without a rate, only `inFlight` limits the load. */
  rate?: number;
  /** The connections of a load with a rate. Default: 256. */
  connections?: number;
  /** True if refusals are expected. Otherwise one ends the run with an error. */
  mayFail?: boolean;
  seconds: number;
  warmUpSeconds: number;
  sessions: number;
  sessionPrefix: string;
  messages: string[];
  firstNumber: number;
};

export type LoadResult = {
  perSecond: number;
  p50: number;
  p99: number;
  /** The number of all answered requests, including those of the warm-up. */
  total: number;
  failed: number;
  cpuMs: number;
};

const GENERATOR = new URL('load.ts', import.meta.url).pathname;
const SPARE_MS = 15_000;

let numbered = 0;

/** Runs the load generator once. A time limit stops it if it does not end as planned. */
export const runLoad = async (settings: Omit<LoadSettings, 'firstNumber'>): Promise<LoadResult> => {
  numbered += 1_000_000; // more than one run can send
  const argument = JSON.stringify({ ...settings, firstNumber: numbered } satisfies LoadSettings);
  const timeout = (settings.seconds + settings.warmUpSeconds) * 1000 + SPARE_MS;
  const { status, stdout, stderr } = await launch(process.execPath, [GENERATOR, argument], { timeout }).ended;
  if (status !== 0) throw new Error(`the load generator ended with ${status}: ${stderr}`);
  const result = JSON.parse(stdout) as LoadResult;
  if (result.failed > 0 && !settings.mayFail) throw new Error(`${result.failed} of ${result.total} requests failed`);
  return result;
};
