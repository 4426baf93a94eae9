import { type Dispatcher, request } from 'undici';
import { checkEndpointUrl } from '../../../src/webhooks/address-guard.ts';
import { withDeadline } from '../../../src/platform/deadline.ts';
import { ModelError, TextsRefused } from './backend.ts';

const ANSWER_MS = 5_000;
const MAX_BYTES = 2_000_000;
/** Statuses that are caused by the texts themselves. */
const TEXT_ERRORS = new Set([400, 413, 422]);

type Call = {
  body: unknown;
  headers: Record<string, string>;
  dispatcher: Dispatcher;
  allowPrivate: boolean;
};

const send = async (url: string, { body, headers, dispatcher }: Call, signal: AbortSignal): Promise<unknown> => {
  const answer = await request(url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Accept: 'application/json', ...headers },
    body: JSON.stringify(body),
    dispatcher,
    signal,
  });
  try {
    if (answer.statusCode !== 200) {
      const reason = `the embeddings service answered ${answer.statusCode}`;
      throw TEXT_ERRORS.has(answer.statusCode) ? new TextsRefused(reason) : new ModelError(reason);
    }
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of answer.body as AsyncIterable<Uint8Array>) {
      bytes += chunk.length;
      if (bytes > MAX_BYTES) throw new ModelError('the answer of the embeddings service is too large');
      chunks.push(chunk);
    }
    return JSON.parse(Buffer.concat(chunks).toString());
  } finally {
    // A body that was not read to its end makes the connection unusable.
    if (!answer.body.readableEnded) answer.body.on('error', () => undefined).destroy();
  }
};

const failureOf = (cause: unknown): ModelError => {
  if (cause instanceof ModelError) return cause;
  const { name } = cause as Error;
  if (name === 'AddressRefused') return new ModelError('the embeddings service has an address that is not public');
  if (name === 'SyntaxError') return new ModelError('the embeddings service did not answer with JSON');
  return new ModelError('the embeddings service could not be reached');
};

/**
 * Posts JSON and returns the parsed answer, with one deadline for connection, request and answer. Throws a
 * `ModelError`.
 */
export const postJson = async (url: string, call: Call): Promise<unknown> => {
  if (!checkEndpointUrl(url, call).ok) {
    throw new ModelError('EMBEDDINGS_URL is not allowed: it must be https, and public in production');
  }
  const late = () => new ModelError('the embeddings service did not answer in time');
  return withDeadline((signal) => send(url, call, signal), ANSWER_MS, { late }).catch((cause: unknown) => {
    throw failureOf(cause);
  });
};
