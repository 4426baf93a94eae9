import { type ErrorKind, type Header, isFinal, type StoredDelivery, type Timings } from './delivery.ts';
import type { ResendRisk } from './tests-and-resends.ts';
import { DELIVERY_DEADLINE_MS } from '../platform/process/time-limits.ts';

/** A list shows neither bodies nor headers, which may have some ten KB in each record. */
export const WITHOUT_TEXTS = { body: 0, responseBody: 0, requestHeaders: 0, responseHeaders: 0 } as const;
export type DeliveryListRow = Omit<StoredDelivery, keyof typeof WITHOUT_TEXTS>;

/** A delivery as a list row, without body and response. */
export type ListedDelivery = Pick<
  StoredDelivery,
  | 'eventId'
  | 'event'
  | 'endpointId'
  | 'assistantId'
  | 'conversationId'
  | 'outcome'
  | 'redelivery'
  | 'happenedAt'
  | 'createdAt'
  | 'endedAt'
> & {
  deliveryId: string;
  sequence: number | null;
  errorKind: ErrorKind | null;
  errorDetail: string | null;
  status: number | null;
  url: string | null;
  ms: number | null;
};

export const toDeliveryRow = (delivery: DeliveryListRow): ListedDelivery => ({
  deliveryId: delivery._id,
  eventId: delivery.eventId,
  event: delivery.event,
  endpointId: delivery.endpointId,
  assistantId: delivery.assistantId,
  conversationId: delivery.conversationId,
  outcome: delivery.outcome,
  sequence: delivery.sequence ?? null,
  errorKind: delivery.errorKind ?? null,
  errorDetail: delivery.errorDetail ?? null,
  status: delivery.status ?? null,
  url: delivery.url === '' ? null : delivery.url,
  redelivery: delivery.redelivery,
  ms: delivery.timings?.total ?? null,
  happenedAt: delivery.happenedAt,
  createdAt: delivery.createdAt,
  endedAt: delivery.endedAt,
});

const SIGNATURE = /^(?:x-factory|webhook)-signature$/i;

type HeaderRecord = Record<string, string | string[]>;

/** Headers by name. The value of a repeated header is a list. */
const byName = (headers: Header[] = []): HeaderRecord => {
  const grouped = Map.groupBy(headers, ({ name }) => name);
  return Object.fromEntries(
    [...grouped].map(([name, same]) => {
      const [first = '', ...more] = same.map(({ value }) => value);
      return [name, more.length === 0 ? first : [first, ...more]];
    }),
  );
};

/** Hides signatures. Anyone with a copy of a signature could replay the request to the receiver for five minutes. */
const redacted = (headers: HeaderRecord): HeaderRecord =>
  Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [
      name,
      SIGNATURE.test(name) ? String(value).replaceAll(/(v1[=,])[\w+/=]+/g, '$1[redacted]') : value,
    ]),
  );

/** Everything that is stored about a delivery, except the claim token and the values of signatures. */
export type DeliveryView = ListedDelivery &
  Pick<StoredDelivery, 'worker' | 'expiresAt'> & {
    requestHeaders: HeaderRecord;
    body: string | null;
    responseHeaders: HeaderRecord;
    responseBody: string | null;
    truncated: boolean;
    timings: Timings | null;
    remoteAddress: string | null;
    tls: NonNullable<StoredDelivery['tls']> | null;
    /**
     * The risk of a resend as far as this delivery alone shows. `planResend` also considers the other deliveries of the
     * event. Null if this delivery cannot be resent.
     */
    resend: ResendRisk | null;
  };

export const toDeliveryView = (delivery: StoredDelivery): DeliveryView => ({
  ...toDeliveryRow(delivery),
  requestHeaders: redacted(byName(delivery.requestHeaders)),
  body: delivery.body ?? null,
  responseHeaders: byName(delivery.responseHeaders),
  responseBody: delivery.responseBody ?? null,
  truncated: delivery.truncated ?? false,
  timings: delivery.timings ?? null,
  remoteAddress: delivery.remoteAddress ?? null,
  tls: delivery.tls ?? null,
  worker: delivery.worker,
  expiresAt: delivery.expiresAt,
  resend: isFinal(delivery.outcome) && delivery.body ? resendRiskOf(delivery) : null,
});

const resendRiskOf = ({ outcome }: StoredDelivery): ResendRisk => (outcome === 'not_sent' ? 'safe' : 'may_double');

/** One check of a test event. `ok` is null if the delivery did not reach this step or there is nothing to check. */
type TestCheck = { check: 'address' | 'tls' | 'status' | 'time'; ok: boolean | null; detail: string | null };

type Checked = Pick<
  StoredDelivery,
  'url' | 'outcome' | 'errorKind' | 'errorDetail' | 'status' | 'remoteAddress' | 'tls' | 'timings'
>;

const EXPIRES_SOON_DAYS = 14;

const addressCheck = ({ errorKind, errorDetail, remoteAddress }: Checked): TestCheck => {
  const failed = errorKind === 'dns' || errorKind === 'address_refused';
  const ok = failed ? false : remoteAddress ? true : null;
  return {
    check: 'address',
    ok,
    detail: remoteAddress ?? (failed ? (errorDetail ?? errorKind.replaceAll('_', ' ')) : null),
  };
};

const tlsCheck = ({ url, errorKind, errorDetail, tls }: Checked): TestCheck => {
  if (!url.startsWith('https:')) return { check: 'tls', ok: null, detail: 'plain HTTP' };
  if (tls) {
    const days = tls.daysToExpiry;
    const expiry = days === null ? 'expiry not known' : `certificate ends in ${days} ${days === 1 ? 'day' : 'days'}`;
    const soon = days !== null && days < EXPIRES_SOON_DAYS ? ': renew it soon' : '';
    return { check: 'tls', ok: true, detail: `${tls.version}, ${expiry}${soon}` };
  }
  return errorKind === 'tls'
    ? { check: 'tls', ok: false, detail: errorDetail ?? 'no TLS 1.3 connection' }
    : { check: 'tls', ok: null, detail: null };
};

const statusCheck = ({ outcome, status, errorKind }: Checked): TestCheck =>
  status == null
    ? {
        check: 'status',
        ok: outcome === 'unknown' ? false : null,
        detail: outcome === 'unknown' ? (errorKind?.replaceAll('_', ' ') ?? null) : null,
      }
    : { check: 'status', ok: outcome === 'delivered', detail: String(status) };

const DEADLINE_S = DELIVERY_DEADLINE_MS / 1000;

const timeCheck = ({ status, errorKind, timings }: Checked): TestCheck => {
  const total = timings?.total ?? null;
  const ok = errorKind === 'timeout' ? false : status == null ? null : true;
  if (ok === false) return { check: 'time', ok, detail: `more than ${DEADLINE_S} s` };
  return { check: 'time', ok, detail: total === null ? null : `${Math.round(total)} ms of ${DEADLINE_S} s` };
};

/** The result of a test event, step by step. */
export const describeTest = (delivery: Checked): { ok: boolean; ended: boolean; checks: TestCheck[] } => ({
  ok: delivery.outcome === 'delivered',
  ended: isFinal(delivery.outcome),
  checks: [addressCheck(delivery), tlsCheck(delivery), statusCheck(delivery), timeCheck(delivery)],
});
