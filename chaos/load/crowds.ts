import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { openWire, requestText, type Wire } from '../../test/kit/raw-http.ts';
import { memoryMbOf } from '../../test/kit/services.ts';
import { mapAtMost } from '../../src/platform/process/slots.ts';
import { printVerdicts, row, type Verdict } from '../support/table.ts';
import { drive } from './drive.ts';
import { judgeEvents, untilDone } from './events.ts';
import { countOf, ms, none, printExamples, printQuantiles, turnVerdicts } from './figures.ts';
import { costliestText, measureScripts } from './scripts.ts';
import { type LoadedService, openLoadedService } from './service.ts';
import type { LoadResult, LoadSettings, Told } from './settings.ts';
import { verifyTurns } from './verify.ts';

const IDLE = 5_000;
const SLOW = 500;
const SESSIONS = 10_000;
const LARGEST = 200;
const OPENED_AT_ONCE = 50;
const LIGHT = { pace: { rate: 30 }, seconds: 15, sessions: 500, retry: false };
const DRIP_EVERY_MS = 500;
/** A request must arrive within 60 s (docs/contract.md, Errors: 408), which is checked every 5 s; the rest is slack. */
const CLOSED_WITHIN_MS = 95_000;
const ANSWERED_WITHIN_S = 300;
const SLOWER = { factor: 2, ms: 50 };
const IDLE_COST_MAX_MB = 150;

type Run = (
  name: string,
  some: Pick<LoadSettings, 'pace' | 'seconds' | 'sessions' | 'retry'> & Partial<LoadSettings>,
) => Promise<LoadResult>;
type Crowd = (loaded: LoadedService, run: Run) => Promise<Verdict[]>;

const unharmed = (what: string, before: LoadResult, during: LoadResult): Verdict[] => {
  printQuantiles('light load before', before.answered);
  printQuantiles(`light load with ${what}`, during.answered);
  const limit = SLOWER.factor * before.answered.p99 + SLOWER.ms;
  return [
    {
      rule: `p99 of a light load with ${what} ≤ 2 × before + 50 ms`,
      found: ms(during.answered.p99),
      kept: during.answered.p99 <= limit,
    },
    none('light turns that were not answered', during.sent - countOf(during, 200, 202)),
  ];
};

const openIdle = ({ door, api }: LoadedService): Promise<{ wire: Wire; isLost: () => boolean }> =>
  new Promise((resolve, reject) => {
    let lost = false;
    const request = requestText({ method: 'GET', path: '/healthz', apiKey: door.apiKey });
    const wire: Wire = openWire(api.port, {
      onOpen: () => wire.send(request),
      onAnswer: () => resolve({ wire, isLost: () => lost }),
      onLost: () => {
        lost = true;
        reject(new Error('an idle connection was refused'));
      },
    });
  });

const idle: Crowd = async (loaded, run) => {
  const before = await run('before', LIGHT);
  const rest = memoryMbOf(loaded.api.pid);
  const connections = await mapAtMost(OPENED_AT_ONCE, Array.from({ length: IDLE }), () => openIdle(loaded));
  const cost = memoryMbOf(loaded.api.pid) - rest;
  const during = await run('with-idle', LIGHT);
  const lost = connections.filter(({ isLost }) => isLost()).length;
  for (const { wire } of connections) wire.close();
  console.log(row(`${IDLE} idle connections cost the API, MB`, cost.toFixed(0)));
  return [
    ...unharmed(`${IDLE} idle connections`, before, during),
    none('idle connections that were closed', lost),
    {
      rule: `memory of the idle connections ≤ ${IDLE_COST_MAX_MB} MB`,
      found: cost.toFixed(0),
      kept: cost <= IDLE_COST_MAX_MB,
    },
  ];
};

type Dripped = { status: number | null; afterMs: number };

/** Sends a request one byte at a time until the server answers or closes. */
const drip = ({ door, api }: LoadedService, part: 'headers' | 'body'): { socket: Socket; end: Promise<Dripped> } => {
  const startedAt = performance.now();
  const socket = connect(api.port, '127.0.0.1');
  const first = `POST /api/v1/chat HTTP/1.1\r\nHost: slow\r\nAuthorization: Bearer ${door.apiKey}\r\nContent-Type: application/json\r\n`;
  socket.write(part === 'headers' ? 'POST /api/v1/chat HTTP/1.1\r\nX-Slow: ' : `${first}Content-Length: 60000\r\n\r\n`);
  const timer = setInterval(() => socket.write('a'), DRIP_EVERY_MS);
  let received = '';
  socket.on('data', (chunk) => (received += chunk.toString('latin1'))).on('error', () => undefined);
  const end = new Promise<Dripped>((resolve) => {
    socket.on('close', () => {
      clearInterval(timer);
      resolve({ status: Number(received.slice(9, 12)) || null, afterMs: performance.now() - startedAt });
    });
  });
  return { socket, end };
};

const slow: Crowd = async (loaded, run) => {
  const before = await run('before', LIGHT);
  const senders = Array.from({ length: SLOW }, (_, number) => {
    const part = number % 2 === 0 ? ('headers' as const) : ('body' as const);
    return { part, ...drip(loaded, part) };
  });
  const during = await run('with-slow', LIGHT);
  console.log(row('waiting for the limits of slow requests, s at most', CLOSED_WITHIN_MS / 1000));
  const verdicts = unharmed(`${SLOW} slow senders`, before, during);
  for (const part of ['headers', 'body'] as const) {
    const some = senders.filter((sender) => sender.part === part);
    const late = sleep(CLOSED_WITHIN_MS, undefined, { ref: false }).then(() =>
      some.forEach(({ socket }) => socket.destroy()),
    );
    const ends = await Promise.all(some.map(({ end }) => end));
    void late;
    const seconds = Math.max(...ends.map(({ afterMs }) => afterMs)) / 1000;
    console.log(row(`slow ${part}: closed after, s at most`, seconds.toFixed(0)));
    verdicts.push(none(`slow ${part} without a 408 in time`, ends.filter(({ status }) => status !== 408).length));
  }
  return verdicts;
};

const allAtOnce = async (run: Run, count: number, more: Partial<LoadSettings> = {}): Promise<Verdict[]> => {
  const all = await run('crowd', {
    pace: { atOnce: count },
    seconds: ANSWERED_WITHIN_S,
    sessions: count,
    retry: true,
    ...more,
  });
  const accepted = countOf(all, 200, 202);
  console.log(row('all answered after, s', ((all.endedAt - all.startedAt) / 1000).toFixed(1)));
  console.log(row('refused and repeated', countOf(all, 429, 503)));
  printQuantiles('answered', all.answered);
  if (all.refused.count > 0) printQuantiles('refused', all.refused);
  return [
    none(`sessions of ${count} without an accepted turn`, count - accepted),
    none('answers other than 200, 202, 429, 503', all.sent - accepted - countOf(all, 429, 503)),
    none('refusals without Retry-After', all.refusedWithoutRetryAfter),
  ];
};

const sessions: Crowd = (_loaded, run) => allAtOnce(run, SESSIONS);

const largest: Crowd = async (loaded, run) => {
  const costs = await measureScripts(loaded.door);
  for (const { name, ms: took } of costs) console.log(row(`a message of 8,000 characters, ${name}, ms`, ms(took)));
  const { language: _, ...door } = loaded.door;
  return allAtOnce(run, LARGEST, { ...door, questions: [costliestText(costs)] });
};

const CROWDS: Record<string, Crowd> = { idle, slow, sessions, largest };

/** Runs one crowd against the whole service, and compares what is stored with what callers were told. */
export const runCrowd = async (name: string): Promise<boolean> => {
  const crowd = CROWDS[name];
  if (!crowd) throw new Error(`--crowd: there are ${Object.keys(CROWDS).join(', ')}`);
  const loaded = await openLoadedService(`crowd-${name}`);
  const { door, service, sink, api } = loaded;
  const told: Told = {};
  const run: Run = async (prefix, some) => {
    const { language, ...rest } = door;
    const spoken = some.questions ? {} : { language: language ?? 'en' };
    const driven = await drive({ ...rest, ...spoken, sessionPrefix: prefix, ...some });
    Object.assign(told, driven.told);
    await sink.take();
    return driven.result;
  };
  try {
    await run('warm-up', { pace: { inFlight: 50 }, seconds: 5, sessions: 500, retry: false });
    const verdicts = await crowd(loaded, run);
    const done = await untilDone(service, 180_000);
    const differences = await verifyTurns(told, loaded);
    console.log(row('memory of the API, MB', memoryMbOf(api.pid).toFixed(0)));
    console.log(row('sessions read / accepted turns compared', `${differences.sessions} / ${differences.turns}`));
    console.log('');
    const events = name === 'largest' ? [] : await judgeEvents(service);
    const kept = printVerdicts([
      ...verdicts,
      { rule: 'pending turns and events', found: done.unfinished.join(', ') || 0, kept: done.unfinished.length === 0 },
      ...turnVerdicts(differences),
      ...events,
    ]);
    printExamples(differences);
    return kept;
  } finally {
    await loaded.close();
  }
};
