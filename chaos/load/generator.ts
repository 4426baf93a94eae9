import { writeFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { openAsker, requestText } from '../../test/kit/raw-http.ts';
import { createTally } from './tally.ts';
import type { LoadSettings, Told, ToldSession } from './settings.ts';

/**
 * Sends turns from a separate process, over raw sockets with one request in flight on each. Records what each session was
 * told. The settings are JSON in the first argument, the result is printed as JSON.
 */
/** The connections of an open loop: one for each turn of a second. More turns than this are never in flight. */
const CONNECTIONS = { least: 100, most: 10_000 };
const LAST_ANSWER_WITHIN_MS = 60_000;
/** Large, so that the number is not taken for a number of the assistant's knowledge. */
const FIRST_NUMBER = 1_000_000;

const settings = JSON.parse(process.argv[2] ?? '{}') as LoadSettings;
const { port, apiKey, assistantId, channelToken, pace, seconds, sessionPrefix, questions, retry } = settings;

type Session = { name: string };
type Order = { session: Session; message: string; request: string };

const tally = createTally();
const told: Told = {};
const idleSessions: Session[] = Array.from({ length: settings.sessions }, (_, number) => {
  const name = `${sessionPrefix}-${number}`;
  told[name] = { conversationId: null, turns: [] };
  return { name };
});
const asker = openAsker(port);
const inFlight = new Set<Order>();
let serial = 0;
let until = Number.POSITIVE_INFINITY;

const headers = (name: string): string => {
  const way = serial % 20;
  if (way === 1) return 'Prefer: respond-async\r\n';
  return way === 2 ? `Idempotency-Key: ${name}-${serial}\r\n` : '';
};

/** Mostly JSON. One request in twenty each comes by the channel, asks for 202, and has an idempotency key. */
const nextOrder = (session: Session): Order => {
  serial += 1;
  // Every message is different, because a repeated message would be answered as a duplicate.
  const message = `${questions[serial % questions.length]} (${FIRST_NUMBER + serial})`;
  const channel = serial % 20 === 0;
  const body = JSON.stringify({ session_id: session.name, message, language: settings.language });
  const request = requestText({
    method: 'POST',
    path: channel ? `/api/v1/channels/webhook/${assistantId}` : '/api/v1/chat',
    apiKey: channel ? channelToken : apiKey,
    body,
  });
  const start = request.indexOf('\r\n') + 2;
  return { session, message, request: request.slice(0, start) + headers(session.name) + request.slice(start) };
};

const rest = (session: Session): void => void idleSessions.push(session);

const keep = ({ session, message }: Order, end: ToldSession['turns'][number][1], conversationId?: string): void => {
  const known = told[session.name] as ToldSession;
  known.turns.push([message, end]);
  if (conversationId !== undefined) known.conversationId = conversationId;
};

const record = (order: Order, status: number, answer: string): void => {
  if (status === 429 || status === 503) {
    const after = Number(/^retry-after: *(\d+)\r$/im.exec(answer)?.[1]);
    if (!(after >= 1)) tally.noteMissingRetryAfter();
    if (retry) return void setTimeout(() => waiting.push(order), (after || 1) * 1000);
  } else if (status === 200) {
    const body = JSON.parse(answer.slice(answer.indexOf('\r\n\r\n') + 4)) as {
      messageId: string;
      conversationId: string;
    };
    keep(order, { messageId: body.messageId }, body.conversationId);
  } else if (status === 202) {
    const body = JSON.parse(answer.slice(answer.indexOf('\r\n\r\n') + 4)) as { conversationId: string };
    keep(order, 'accepted', body.conversationId);
  } else keep(order, 'unknown');
  rest(order.session);
};

/** Refused orders that are due again. Only with `retry`. */
const waiting: Order[] = [];
const takeOrder = (): Order | null => {
  const again = waiting.shift();
  if (again) return again;
  const session = idleSessions.shift();
  return session ? nextOrder(session) : null;
};

/** Called when a connection has its answer. */
let onFree = (): void => undefined;

const start = async (order: Order): Promise<void> => {
  inFlight.add(order);
  const sentAt = performance.now();
  const answered = await asker.ask(order.request).catch(() => null);
  inFlight.delete(order);
  if (answered === null) {
    tally.noteLost();
    keep(order, 'unknown');
    return rest(order.session);
  }
  const status = Number(answered.answer.slice(9, 12));
  tally.note(status, sentAt);
  record(order, status, answered.answer);
  onFree();
};

const dispatch = (): void => {
  const order = asker.countFree() > 0 ? takeOrder() : null;
  if (order) void start(order);
  else tally.noteSkipped();
};

const untilQuiet = (): Promise<void> =>
  new Promise((resolve) => {
    const limit = performance.now() + LAST_ANSWER_WITHIN_MS;
    const timer = setInterval(() => {
      if (inFlight.size > 0 && performance.now() < limit) return;
      clearInterval(timer);
      resolve();
    }, 20);
  });

const atFixedRate = (rate: number): Promise<void> =>
  new Promise((resolve) => {
    const from = performance.now();
    let due = 0;
    const clock = setInterval(() => {
      const now = Math.min(performance.now(), until);
      for (; due < ((now - from) * rate) / 1000; due += 1) dispatch();
      if (performance.now() < until) return;
      clearInterval(clock);
      resolve();
    }, 1);
  });

const withAlways = (count: number): Promise<void> =>
  new Promise((resolve) => {
    onFree = () => {
      const order = performance.now() < until ? takeOrder() : null;
      if (order) void start(order);
      if (performance.now() >= until) resolve();
    };
    for (let nth = 0; nth < count; nth += 1) onFree();
  });

/** One turn of each session. A refused turn is sent again when its `Retry-After` is over. */
const allAtOnce = (count: number): Promise<void> =>
  new Promise((resolve) => {
    for (let nth = 0; nth < count; nth += 1) dispatch();
    const clock = setInterval(() => {
      while (waiting.length > 0 && asker.countFree() > 0) void start(waiting.shift() as Order);
      if (idleSessions.length < count && performance.now() < until) return;
      clearInterval(clock);
      resolve();
    }, 10);
  });

const lanesFor = (): number => {
  if ('rate' in pace) return Math.min(CONNECTIONS.most, Math.max(CONNECTIONS.least, Math.ceil(pace.rate)));
  return 'inFlight' in pace ? pace.inFlight : pace.atOnce;
};

const count = lanesFor();
await asker.warmUp(count, requestText({ method: 'GET', path: '/healthz', apiKey }));
if (asker.countFree() < count) throw new Error('a connection was closed');
const delay = monitorEventLoopDelay({ resolution: 5 });
delay.enable();
const startedAt = performance.now();
until = startedAt + seconds * 1000;
await ('rate' in pace ? atFixedRate(pace.rate) : 'inFlight' in pace ? withAlways(count) : allAtOnce(count));
const endedAt = performance.now();
await untilQuiet();
for (const order of inFlight) {
  tally.noteLost();
  keep(order, 'unknown');
}
writeFileSync(settings.toldFile, JSON.stringify(told));
const lag = { p99: delay.percentile(99) / 1e6, max: delay.max / 1e6 };
const { timeOrigin } = performance;
const result = tally.result({ startedAt: timeOrigin + startedAt, endedAt: timeOrigin + endedAt, generatorLag: lag });
process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0));
