import { Status, type Tone } from '../../parts/status.tsx';
import type { DeliveryRow, Outcome as OutcomeName } from '../../types.ts';

const SHOWN: Record<OutcomeName, { words: string; tone: Tone }> = {
  queued: { words: 'Waiting', tone: 'calm' },
  sending: { words: 'Sending', tone: 'busy' },
  delivered: { words: 'Delivered', tone: 'good' },
  rejected: { words: 'Rejected', tone: 'bad' },
  not_sent: { words: 'Not sent', tone: 'bad' },
  unknown: { words: 'Unknown', tone: 'warn' },
};

export const OUTCOMES = Object.entries(SHOWN).map(([value, { words }]) => ({ value, label: words }));

export const Outcome = ({ outcome }: { outcome: OutcomeName }) => (
  <Status tone={SHOWN[outcome].tone}>{SHOWN[outcome].words}</Status>
);

type Kind = NonNullable<DeliveryRow['errorKind']>;

const REASONS: Record<Kind, string> = {
  address_refused: 'The address is not a public one, so nothing was sent.',
  dns: 'The name of the server has no address.',
  connect: 'No connection to the server could be made.',
  tls: 'No safe connection: TLS 1.3 and a valid certificate are needed.',
  expired: 'It waited for too long.',
  backlog: 'Too many events of its conversation were waiting.',
  endpoint_removed: 'The endpoint was removed before it could be sent.',
  endpoint_disabled: 'The endpoint was off when it happened, or was turned off since.',
  timeout: 'It was sent, but no answer came within 5 seconds. Whether it was taken is not known.',
  reset: 'It was sent, and the connection was closed before an answer. Whether it was taken is not known.',
  bad_response: 'It was sent, and what came back is not HTTP. Whether it was taken is not known.',
  worker_lost: 'The process that was sending it is gone. Whether it was taken is not known.',
  erased: 'Its conversation was erased.',
  internal: 'Something failed on our side.',
};

export const reasonOf = ({ errorKind, outcome, status }: Pick<DeliveryRow, 'errorKind' | 'outcome' | 'status'>) => {
  if (errorKind !== null) return REASONS[errorKind];
  if (outcome === 'rejected') return `The server answered with ${status}. It was not sent again.`;
  return null;
};

export const isFinal = (outcome: OutcomeName): boolean => outcome !== 'queued' && outcome !== 'sending';
