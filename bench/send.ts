/**
 * Compares `send` with a bare undici dispatch: both send the same small POSTs, 200 in flight, to a sink in a separate
 * process. Exits non-zero if `send` reaches less than 0.7 of undici's rate. BENCH_N and BENCH_IN_FLIGHT change the
 * load.
 */
import { performance } from 'node:perf_hooks';
import { Pool } from 'undici';
import { stopAll } from '../test/kit/processes.ts';
import { openSink } from '../test/kit/sink.ts';
import { newWebhookSecret, signEvent } from '../src/events/signature.ts';
import { createSender } from '../src/events/sending/send.ts';

const N = Number(process.env.BENCH_N ?? 10_000);
const IN_FLIGHT = Number(process.env.BENCH_IN_FLIGHT ?? 200);
const ROUNDS = 5;
const FLOOR = 0.7;

type Contender = { name: string; one: (nth: number) => Promise<unknown>; best: number; cpu: number };

const run = async (contender: Contender, count: number) => {
  let left = count;
  const lane = async (nth: number) => {
    while (left-- > 0) await contender.one(nth);
  };
  const startedAt = performance.now();
  const cpuBefore = process.cpuUsage();
  await Promise.all(Array.from({ length: IN_FLIGHT }, (_, nth) => lane(nth)));
  const used = process.cpuUsage(cpuBefore);
  contender.best = Math.max(contender.best, count / ((performance.now() - startedAt) / 1000));
  contender.cpu = Math.min(contender.cpu, (used.user + used.system) / count);
};

const main = async () => {
  const { port } = await openSink();
  const origin = `http://127.0.0.1:${port}`;
  const body = Buffer.from(JSON.stringify({ event: 'message.received', payload: { content: 'x'.repeat(450) } }));
  const secret = newWebhookSecret();
  const headersAt = (timestamp: number) => ({
    'Content-Type': 'application/json',
    'X-Factory-Event': 'message.received',
    'X-Factory-Event-Id': '00000000-0000-4000-8000-000000000000',
    'X-Factory-Signature': signEvent({ body, secrets: [secret], timestamp }),
  });

  const pool = new Pool(origin, { connections: IN_FLIGHT, pipelining: 1, allowH2: false });
  const post = (headers: Record<string, string>) =>
    new Promise<void>((resolve, reject) => {
      const handler = {
        onRequestStart: () => {},
        onResponseStart: () => {},
        onResponseData: () => {},
        onResponseEnd: () => resolve(),
        onResponseError: (_: unknown, error: Error) => reject(error),
      };
      pool.dispatch(
        { path: '/hook', method: 'POST', headers: { ...headers, 'Accept-Encoding': 'identity' }, body },
        handler,
      );
    });
  const sender = createSender({ userAgent: 'Parley-Webhooks/bench', allowPrivate: true, perEndpointConnections: 20 });
  const send = async (nth: number, headers: typeof headersAt | typeof fixed) => {
    const result = await sender.send({ endpointId: `e${nth % 10}`, url: `${origin}/hook`, body, headers });
    if (result.outcome !== 'delivered') throw new Error(`${result.outcome} ${result.errorKind} ${result.errorDetail}`);
  };
  const fixed = headersAt(0);
  const ways: [name: string, one: Contender['one']][] = [
    ['undici, bare dispatch', () => post(fixed)],
    ['undici, signed', () => post(headersAt(Math.floor(Date.now() / 1000)))],
    ['send', (nth) => send(nth, fixed)],
    ['send, signed', (nth) => send(nth, headersAt)],
  ];
  const contenders = ways.map(([name, one]): Contender => ({ name, one, best: 0, cpu: Number.POSITIVE_INFINITY }));
  for (const contender of contenders) await run(contender, 5000);
  // The two contenders alternate. The best round of each counts, because other load on the machine can only lower a
  // rate.
  for (let round = 0; round < ROUNDS; round += 1) for (const contender of contenders) await run(contender, N);
  await pool.destroy();
  await sender.close();
  await stopAll();

  for (const { name, best, cpu } of contenders)
    console.log(`${name.padEnd(28)} ${Math.round(best)}/s, ${cpu.toFixed(1)} us of CPU a request`);
  const [bare = 0, , ours = 0] = contenders.map(({ best }) => best);
  console.log(`send keeps ${(ours / bare).toFixed(2)} of undici's rate (at least ${FLOOR} wanted)`);
  if (ours / bare < FLOOR) process.exitCode = 1;
};

await main();
