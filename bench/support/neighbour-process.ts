import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { QUESTIONS } from '../../test/kit/parley.ts';
import { ascending, quantile } from '../../test/kit/quantiles.ts';
import { openAsker, requestText } from '../../test/kit/raw-http.ts';
import type { NeighbourOrder, Turns } from './neighbour.ts';

const LANES = 64;
/** Attacks come from other addresses, as from the servers of another customer. */
const FROM = { localAddress: '127.0.0.2' };
const ANSWERED_WITHIN_MS = 35_000;

const QUESTION_OF = {
  sure: (nth: number): string => `${QUESTIONS[nth % QUESTIONS.length]} (${nth})`,
  /** Answered only with the language model, because the words differ from those of every entry. */
  vague: (nth: number): string => `what must I do to make the ${nth}th gadget act the way I like it`,
};

/** Requests that are due at fixed times. The time of a request counts from the moment when it was due. */
const askFor = async ({ port, apiKey, seconds, questions, turnsASecond }: NeighbourOrder): Promise<Turns> => {
  const times: number[] = [];
  let refused = 0;
  let sent = 0;
  const run = randomUUID().slice(0, 8);
  const asker = openAsker(port, FROM);
  await asker.warmUp(LANES);
  const send = async (nth: number, dueAt: number): Promise<void> => {
    const body = JSON.stringify({ session_id: `${run}-${nth}`, message: QUESTION_OF[questions](nth), language: 'en' });
    const request = requestText({ method: 'POST', path: '/api/v1/chat', apiKey, body });
    const { ok } = await asker.ask(request).catch(() => ({ ok: false }));
    times.push(performance.now() - dueAt);
    if (!ok) refused += 1;
  };
  const begun = performance.now();
  while (performance.now() - begun < seconds * 1000) {
    const dueAt = begun + (sent * 1000) / turnsASecond;
    if (performance.now() < dueAt || sent - times.length >= LANES) await sleep(1);
    else void send(sent++, dueAt);
  }
  const until = performance.now() + ANSWERED_WITHIN_MS;
  while (times.length < sent && performance.now() < until) await sleep(10);
  asker.close();
  // Turns without any answer took at least as long as was waited for them.
  const all = ascending([...times, ...Array.from({ length: sent - times.length }, () => ANSWERED_WITHIN_MS)]);
  return { p50: quantile(all, 0.5), p99: quantile(all, 0.99), refused: refused + sent - times.length, sent };
};

process.on('message', (order: NeighbourOrder) => void askFor(order).then((turns) => process.send?.(turns)));
process.on('disconnect', () => process.exit(0));
