import { setTimeout as sleep } from 'node:timers/promises';
import { describeTest } from '../../../src/events/view.ts';
import { deliveryOperations } from '../../../src/events/http/deliveries.ts';
import type { Answered, Api } from '../api.ts';
import type { Answer } from '../session.ts';
import { plain } from '../text.ts';
import { DELIVERY_DEADLINE_MS } from '../../../src/platform/process/time-limits.ts';

const WAIT_MS = 10_000;
const LOOK_EVERY_MS = 50;

const TIME = `within ${DELIVERY_DEADLINE_MS / 1000} s`;
const CHECKS = { address: 'address resolved', tls: 'TLS', status: 'status', time: TIME } as const;

type Delivery = Answered<typeof deliveryOperations.read>;

/** A delivery with all stored fields. */
export const toWhole = ({ test: _test, resend, ...delivery }: Delivery) => ({
  ...delivery,
  resend: resend?.risk ?? null,
});

/** The checks that show how far the request got. */
const checksOf = (delivery: Delivery) => describeTest({ ...delivery, url: delivery.url ?? '' }).checks;

const toChecked = (delivery: Delivery) => ({ ...toWhole(delivery), checklist: checksOf(delivery) });

const MARK = (ok: boolean | null): string => (ok === null ? '–   ' : ok ? 'ok  ' : 'FAIL');

const textOf = (delivery: Delivery): string => {
  const { event, url, outcome, errorKind, responseBody } = delivery;
  const why = errorKind ? ` (${errorKind})` : '';
  const checks = checksOf(delivery).map(
    ({ check, ok, detail }) => `  ${MARK(ok)} ${CHECKS[check]}${detail ? `: ${plain(detail)}` : ''}`,
  );
  const answer = responseBody ? [`  Answer: ${plain(responseBody.slice(0, 500)).replaceAll('\n', ' ')}`] : [];
  return [`${event} to ${plain(url ?? '')}: ${outcome}${why}`, ...checks, ...answer].join('\n');
};

/**
 * Waits up to 10 s until a test or resend has ended, and describes its outcome. If it has not ended by then, the exit
 * status is 1.
 */
export const awaitOutcome = async (api: Api, deliveryId: string): Promise<Answer> => {
  const until = Date.now() + WAIT_MS;
  for (;;) {
    const delivery = await api.call(deliveryOperations.read, { id: deliveryId, what: 'delivery' });
    if (delivery.endedAt !== null) {
      return { json: toChecked(delivery), text: textOf(delivery) };
    }
    if (Date.now() > until) {
      const note = 'No delivery worker has ended it within 10 s: see `npm run admin -- doctor`.';
      return { json: { ...toChecked(delivery), note }, text: `${textOf(delivery)}\n${note}`, status: 1 };
    }
    await sleep(LOOK_EVERY_MS);
  }
};
