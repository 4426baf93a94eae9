import { AssertionError } from 'node:assert';
import { errors } from 'undici';
import { AddressRefused, NameUnresolved } from '../../../src/webhooks/address-guard.ts';

/** The steps before a request can be written. The name of a failed step is also the name of the failure. */
export type Phase = 'dns' | 'connect' | 'tls';

/** Why a request has no status. `too_late` and `shutdown` leave the event pending. */
export const ERROR_KINDS = [
  'address_refused', // the URL or an address of its name is not public
  'dns', // the name has no address
  'connect', // no TCP connection, refused or unanswered
  'tls', // no TLS 1.3, an invalid certificate, or an unanswered handshake
  'too_late', // past `notAfter` before anything was written
  'shutdown', // the sender was closed before anything was written
  'timeout', // written, and no whole response head within the deadline
  'reset', // written, and the connection was closed or reset before a response
  'bad_response', // written, and what came back is not HTTP/1
  'internal', // a fault of this service
] as const;
export type ErrorKind = (typeof ERROR_KINDS)[number];

export const connectionFailure = (error: unknown, phase: Phase): { kind: ErrorKind; detail: string } => {
  if (error instanceof AddressRefused) return { kind: 'address_refused', detail: error.message };
  if (error instanceof NameUnresolved) return { kind: 'dns', detail: describe(error.cause ?? error) };
  return { kind: phase, detail: describe(error) };
};

// These two errors of undici can be recognised only by their messages.
const UNEXPECTED_CONTINUE = 'bad response';
const UNEXPECTED_UPGRADE = 'bad upgrade';

/** True for undici's error on a 101 that was not requested. */
export const isUpgrade = (error: Error): boolean => error.message === UNEXPECTED_UPGRADE;

/** The failure of a request that was written and got no status. */
export const responseFailure = (error: Error): { kind: ErrorKind; detail: string } => {
  if (error.message === UNEXPECTED_CONTINUE)
    return { kind: 'bad_response', detail: '100 Continue, which was not asked for' };
  if (error instanceof errors.SocketError) return { kind: 'reset', detail: 'closed before a whole response' };
  const isBreach = [errors.HTTPParserError, errors.UndiciError, AssertionError].some((known) => error instanceof known);
  return isBreach
    ? { kind: 'bad_response', detail: error.message.slice(0, 200) }
    : { kind: 'reset', detail: describe(error) };
};

export const describe = (error: unknown): string => {
  if (error instanceof AggregateError && error.errors.length > 0) return describe(error.errors[0]);
  if (!(error instanceof Error)) return 'unknown error';
  return 'code' in error && typeof error.code === 'string' ? error.code : error.message.slice(0, 200);
};
