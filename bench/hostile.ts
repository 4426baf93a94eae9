/**
 * Measures memory and time of the sender with 1,000 sends to hostile receivers of every kind, 150 at a time. The
 * receivers run in a separate process. Exits non-zero if a send takes longer than 5.5 s or resident memory grows by 32
 * MB or more. BENCH_N changes the number of sends.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { createSender } from '../src/events/sending/send.ts';
import { AUTHORITY, EXPIRED, KEY, OTHER_NAME, VALID } from '../test/kit/certificates.ts';
import { type Behaviour, HOSTILE, openHostile } from '../test/kit/hostile-receiver.ts';

const N = Number(process.env.BENCH_N ?? 1000);
const IN_FLIGHT = 150;
const LIMIT_MS = 5500;
const LIMIT_MB = 32;

const runReceivers = async () => {
  const urls: string[] = [];
  for (const behaviour of Object.values<Behaviour>(HOSTILE)) {
    urls.push(`http://127.0.0.1:${(await openHostile(behaviour)).port}/`);
  }
  const identities = [{ maxVersion: 'TLSv1.2' as const }, { cert: EXPIRED }, { cert: OTHER_NAME }];
  for (const identity of identities) {
    urls.push(`https://127.0.0.1:${(await openHostile({}, { key: KEY, cert: VALID, ...identity })).port}/`);
  }
  urls.push(`https://127.0.0.1:${(await openHostile({})).port}/`); // the TLS handshake never ends
  process.send?.(urls);
};

const main = async () => {
  const receivers = fork(import.meta.filename, ['receivers']);
  const [urls] = (await once(receivers, 'message')) as [string[]];
  const sender = createSender({ userAgent: 'Bench', allowPrivate: true, perEndpointConnections: 20, ca: AUTHORITY });
  const ends = new Map<string, number>();
  let slowest = 0;
  const body = Buffer.from('{"event":"webhook.test"}');
  const run = async (count: number) => {
    let next = 0;
    const lane = async () => {
      for (let url = urls[next++ % urls.length] ?? ''; next <= count; url = urls[next++ % urls.length] ?? '') {
        const { outcome, errorKind, timings } = await sender.send({ endpointId: url, url, body, headers: {} });
        const end = errorKind ? `${outcome}: ${errorKind}` : outcome;
        ends.set(end, (ends.get(end) ?? 0) + 1);
        slowest = Math.max(slowest, timings.total);
      }
    };
    await Promise.all(Array.from({ length: IN_FLIGHT }, lane));
  };

  // The heap grows to its working size during these first sends. Otherwise that growth would count as a leak.
  await run(urls.length * 10);
  ends.clear();
  const before = process.memoryUsage().rss;
  await run(N);
  const grownMb = (process.memoryUsage().rss - before) / 1_000_000;
  await sender.close();
  receivers.kill();

  console.log(`${N} sends to ${urls.length} kinds of hostile receivers`);
  for (const [end, count] of [...ends].toSorted(([a], [b]) => a.localeCompare(b)))
    console.log(`  ${String(count).padStart(5)}  ${end}`);
  console.log(`slowest ${Math.round(slowest)} ms (limit ${LIMIT_MS})`);
  console.log(
    `resident memory ${Math.round(before / 1_000_000)} MB, grown by ${grownMb.toFixed(1)} MB (limit ${LIMIT_MB})`,
  );
  if (slowest > LIMIT_MS || grownMb >= LIMIT_MB) process.exitCode = 1;
};

if (process.argv[2] === 'receivers') await runReceivers();
else await main();
