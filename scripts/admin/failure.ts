import { CommanderError } from 'commander';
import * as z from 'zod';
import { ApiError } from '../../src/platform/process/errors.ts';
import { ConfigError } from '../../src/platform/process/config.ts';
import { plainMessage } from '../../src/platform/process/logger.ts';
import { VaultError } from '../../src/platform/process/vault.ts';

const USAGE_STATUS = 2;

/** An error for the person at the terminal, in one line. */
export class Failure extends Error {
  readonly code: string;
  readonly status: number;
  /** The invalid field of the request. Undefined if the error is not about a field. */
  readonly field: string | undefined;

  constructor(
    code: string,
    message: string,
    { status = 1, field, cause }: { status?: number; field?: string | undefined; cause?: unknown } = {},
  ) {
    super(message, { cause });
    this.code = code;
    this.status = status;
    this.field = field;
  }
}

export const usage = (message: string): Failure => new Failure('usage', message, { status: USAGE_STATUS });

export const notFoundFailure = (what: string, id: string): Failure =>
  new Failure('not_found', `There is no ${what} ${id}.`);

type ServiceError = Pick<ApiError, 'code' | 'message'> & { details?: ApiError['details'] | undefined };

/** The service's error as one line. A conflict explains itself; its details may name what it is about. */
export const failureOf = ({ code, message, details = [] }: ServiceError): Failure => {
  const fields = details.map((detail) => `${detail.field} ${detail.message}`).join('; ');
  const worse = details.flatMap((detail) => (detail.code === 'worse' ? `“${detail.message}”` : [])).join(' ');
  const explained = worse === '' ? message : `${message} ${worse}`;
  return new Failure(code, code === 'conflict' || fields === '' ? explained : fields, { field: details[0]?.field });
};

export const toFailure = (cause: unknown): Failure => {
  if (cause instanceof Failure) return cause;
  if (cause instanceof CommanderError) {
    const helped = cause.code === 'commander.help';
    return usage(helped ? 'Give a command; see --help.' : cause.message.replace(/^error: /, ''));
  }
  if (cause instanceof ApiError) return failureOf(cause);
  if (cause instanceof ConfigError) return new Failure('configuration', cause.message.replaceAll('\n', '; '));
  if (cause instanceof VaultError) return new Failure('encryption_key', `ENCRYPTION_KEY is wrong: ${cause.message}.`);
  if (cause instanceof z.ZodError) {
    return new Failure(
      'validation_failed',
      cause.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; '),
    );
  }
  // The message of an unexpected error may contain secrets or personal data, so it is redacted.
  return new Failure('internal_error', cause instanceof Error ? plainMessage(cause.message) : 'something failed');
};
