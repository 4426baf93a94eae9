import { setTimeout as sleep } from 'node:timers/promises';
import type { StoredDelivery } from '../../../src/events/delivery.ts';
import { nothingUnder } from '../failure.ts';
import { toWhole } from './view.ts';
import type { Answer, Opened } from '../session.ts';
import { msOf, plain } from '../text.ts';

const WAIT_MS = 10_000;
const LOOK_EVERY_MS = 50;

type Checked = Pick<StoredDelivery, 'url' | 'outcome' | 'errorKind' | 'status' | 'remoteAddress' | 'tls' | 'timings'>;

/** Each step of the way with what became of it; null = it was not reached, or does not apply. */
export const checklistOf = ({ url, outcome, errorKind, status, remoteAddress, tls, timings }: Checked) => {
  const total = timings?.total ?? null;
  const secure = url.startsWith('https:');
  const reached = (failed: boolean, passed: boolean): boolean | null => (passed ? true : failed ? false : null);
  return [
    {
      check: 'address resolved',
      ok: reached(errorKind === 'dns' || errorKind === 'address_refused', Boolean(remoteAddress)),
      detail: remoteAddress ?? errorKind ?? null,
    },
    {
      check: 'TLS',
      ok: secure ? reached(errorKind === 'tls', Boolean(tls)) : null,
      detail: tls
        ? `${tls.version}, certificate ends in ${tls.daysToExpiry ?? '?'} days`
        : secure
          ? null
          : 'plain HTTP',
    },
    {
      check: 'status',
      ok: status == null ? null : outcome === 'delivered',
      detail: status == null ? null : String(status),
    },
    {
      check: 'within 5 s',
      ok: total === null ? null : errorKind !== 'timeout',
      detail: total === null ? null : msOf(total),
    },
  ];
};

const MARK = (ok: boolean | null): string => (ok === null ? '–   ' : ok ? 'ok  ' : 'FAIL');

const textOf = (delivery: StoredDelivery): string => {
  const { event, url, outcome, errorKind, responseBody } = delivery;
  const why = errorKind ? ` (${errorKind})` : '';
  const checks = checklistOf(delivery).map(
    ({ check, ok, detail }) => `  ${MARK(ok)} ${check}${detail ? `: ${plain(detail)}` : ''}`,
  );
  const answer = responseBody ? [`  Answer: ${plain(responseBody.slice(0, 500)).replaceAll('\n', ' ')}`] : [];
  return [`${event} to ${plain(url)}: ${outcome}${why}`, ...checks, ...answer].join('\n');
};

/** Waits for a test or a resend to end, and tells; a delivery nobody took within 10 s is a failure of ours. */
export const awaitOutcome = async ({ deliveries, queues }: Opened, deliveryId: string): Promise<Answer> => {
  await queues.wakeDelivery(deliveryId);
  const until = Date.now() + WAIT_MS;
  for (;;) {
    const delivery = (await deliveries.readByIds([deliveryId])).get(deliveryId);
    if (!delivery) throw nothingUnder('delivery', deliveryId);
    if (delivery.endedAt !== null) {
      return { json: { ...toWhole(delivery), checklist: checklistOf(delivery) }, text: textOf(delivery) };
    }
    if (Date.now() > until) {
      const note = 'No delivery worker has ended it within 10 s: see `npm run admin -- doctor`.';
      const json = { ...toWhole(delivery), checklist: checklistOf(delivery), note };
      return { json, text: `${textOf(delivery)}\n${note}`, status: 1 };
    }
    await sleep(LOOK_EVERY_MS);
  }
};
