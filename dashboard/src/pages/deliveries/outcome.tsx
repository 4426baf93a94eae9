import { DELIVERY_DEADLINE_MS } from '../../../../src/platform/process/time-limits.ts';
import { Status, type Tone } from '../../parts/status.tsx';
import type { DeliveryRow, Outcome } from '../../types.ts';

const SHOWN: Record<Outcome, { words: string; tone: Tone }> = {
  queued: { words: 'Waiting', tone: 'calm' },
  sending: { words: 'Sending', tone: 'busy' },
  delivered: { words: 'Delivered', tone: 'good' },
  rejected: { words: 'Rejected', tone: 'bad' },
  not_sent: { words: 'Not sent', tone: 'bad' },
  unknown: { words: 'Unknown', tone: 'warn' },
};

export const shownOutcome = (outcome: Outcome) => SHOWN[outcome];

export const OUTCOMES = Object.entries(SHOWN).map(([value, { words }]) => ({ value, label: words }));

export const OutcomeBadge = ({ outcome }: { outcome: Outcome }) => (
  <Status tone={SHOWN[outcome].tone}>{SHOWN[outcome].words}</Status>
);

type Kind = NonNullable<DeliveryRow['errorKind']>;

const REASONS: Record<Kind, string> = {
  address_refused: 'The address is not public, so nothing was sent.',
  dns: 'The server’s name has no address (DNS).',
  connect: 'Could not connect to the server.',
  tls: 'No secure connection. The server needs TLS 1.3 and a valid certificate.',
  expired: 'It waited too long and was not sent.',
  backlog: 'Too many events of this conversation were waiting.',
  endpoint_removed: 'The endpoint was removed before the event was sent.',
  endpoint_disabled: 'The endpoint was off when the event happened, or was turned off before it was sent.',
  timeout: `It was sent, but there was no answer within ${DELIVERY_DEADLINE_MS / 1000} seconds. The receiver may have it.`,
  reset: 'It was sent, but the connection closed before an answer. The receiver may have it.',
  bad_response: 'It was sent, but the answer was not HTTP. The receiver may have it.',
  worker_lost: 'The process stopped while sending it. The receiver may have it.',
  erased: 'Its conversation was erased.',
  internal: 'Something failed in this service.',
};

export const reasonOf = ({ errorKind, outcome, status }: Pick<DeliveryRow, 'errorKind' | 'outcome' | 'status'>) => {
  if (errorKind !== null) return REASONS[errorKind];
  if (outcome === 'rejected') return `The server answered ${status}. There is no automatic retry.`;
  return null;
};

export const isFinal = (outcome: Outcome): boolean => outcome !== 'queued' && outcome !== 'sending';
