import { ascending, quantile } from '../../test/kit/quantiles.ts';
import type { LoadResult, LoadSettings } from './load-settings.ts';
import { openAsker, requestText } from '../../test/kit/raw-http.ts';

/**
 * A light load generator in a separate process. It uses raw sockets with one request in flight on each. Without `rate`,
 * each socket sends its next request once the previous one is answered (closed loop). With `rate`, requests are due at
 * fixed times, and the latency of a request is measured from its due time (open loop). The settings are JSON in the
 * first argument. The result is printed as JSON.
 */
const settings = JSON.parse(process.argv[2] ?? '{}') as LoadSettings;
const { kind, port, seconds, warmUpSeconds, sessions, sessionPrefix, messages, rate } = settings;
const { connections = 256, moreKeys = [] } = settings;
const apiKeys = [settings.apiKey, ...moreKeys];

const latencies: number[] = [];
let total = 0;
let failed = 0;
let answered = 0;
let counter = settings.firstNumber;
let countFrom = 0;
let until = 0;

const bodyOf = (sessionId: string, text: string): string =>
  kind === 'chat'
    ? JSON.stringify({ session_id: sessionId, message: text, language: 'en' })
    : JSON.stringify({
        type: 'message',
        id: String(counter),
        deliveryMode: 'expectReplies',
        channelId: 'directline',
        serviceUrl: 'http://127.0.0.1/',
        from: { id: sessionId },
        recipient: { id: 'bot' },
        conversation: { id: sessionId },
        text,
      });

const path = kind === 'chat' ? '/api/v1/chat' : '/api/messages';

/** Builds the next request. Every message is different, because a repeated message would be answered as a duplicate. */
const nextRequest = (): string => {
  counter += 1;
  const text = `${messages[counter % messages.length]} (${counter})`;
  const body = bodyOf(`${sessionPrefix}-${counter % sessions}`, text);
  const apiKey = apiKeys[counter % apiKeys.length] ?? '';
  return requestText({ method: 'POST', path, apiKey, body });
};

const note = (ok: boolean, from: number): void => {
  const now = performance.now();
  total += 1;
  if (!ok) failed += 1;
  else if (now >= countFrom && now <= until) {
    answered += 1;
    // A load with a rate that is not carried falls behind, and what is due now is not sent yet.
    if (from >= countFrom) latencies.push(now - from);
  }
};

const asker = openAsker(port);

/** Sends the next request, whose time counts from `from`. False if its connection was lost. */
const send = async (from: number): Promise<boolean> => {
  const answered = await asker.ask(nextRequest()).catch(() => null);
  if (answered) note(answered.ok, from);
  else failed += 1;
  return answered !== null;
};

const driveClosed = async (): Promise<void> => {
  for (let from = performance.now(); from < until; from = performance.now()) if (!(await send(from))) return;
};

const driveOpen = (perSecond: number): Promise<void> =>
  new Promise((resolve) => {
    const startedAt = performance.now();
    let issued = 0;
    let inFlight = 0;
    const dueAtOf = (nth: number): number => startedAt + (nth * 1000) / perSecond;
    const sendOne = async (dueAt: number): Promise<void> => {
      inFlight += 1;
      await send(dueAt);
      inFlight -= 1;
      sendDue();
    };
    const sendDue = (): void => {
      for (const now = performance.now(); asker.countFree() > 0 && dueAtOf(issued) <= now && now < until; ) {
        void sendOne(dueAtOf(issued));
        issued += 1;
      }
    };
    const clock = setInterval(() => {
      sendDue();
      if (performance.now() < until || inFlight > 0) return;
      clearInterval(clock);
      resolve();
    }, 1);
  });

await asker.warmUp(rate === undefined ? settings.inFlight : connections);
countFrom = performance.now() + warmUpSeconds * 1000;
until = countFrom + seconds * 1000;
await (rate === undefined ? Promise.all(Array.from({ length: settings.inFlight }, driveClosed)) : driveOpen(rate));
asker.close();
const sorted = ascending(latencies);
const { user, system } = process.cpuUsage();
const result: LoadResult = {
  perSecond: answered / seconds,
  p50: quantile(sorted, 0.5),
  p99: quantile(sorted, 0.99),
  total,
  failed,
  cpuMs: (user + system) / 1000,
};
console.log(JSON.stringify(result));
