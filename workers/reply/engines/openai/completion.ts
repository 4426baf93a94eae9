import { isIP } from 'node:net';
import { createParser } from 'eventsource-parser';
import { Agent, buildConnector, type Dispatcher, request } from 'undici';
import * as z from 'zod';
import { withDeadline } from '../../../../src/process/deadline.ts';
import { AddressRefused, guardedLookup, isAllowedPeer } from '../../../../src/webhooks/address-guard.ts';

const CONNECT_MS = 3_000;

/** `connections` is the maximum per provider. Many assistants may share one provider. */
type Options = { allowPrivate: boolean; connections: number };

/** Connections to providers. The address guard of webhooks applies, because owners choose the provider's URL. */
export const openProviderAgent = ({ allowPrivate, connections }: Options): Agent => {
  // HTTP/1.1 only: over HTTP/2, undici would repeat a refused request by itself.
  const settings = { timeout: CONNECT_MS, allowH2: false, lookup: guardedLookup({ allowPrivate }) };
  const connect = buildConnector(settings);
  return new Agent({
    allowH2: false,
    pipelining: 1,
    connections,
    connect: (options, callback) => {
      // `lookup` is not called for an IP address in the URL, so the address is checked here.
      const host = options.hostname.replace(/^\[|\]$/g, '');
      if (isIP(host) !== 0 && !isAllowedPeer(host, { allowPrivate })) {
        callback(new AddressRefused('the provider has an address that is not public'), null);
        return;
      }
      connect(options, (error, socket) => {
        if (error) callback(error, null);
        else if (isAllowedPeer(socket.remoteAddress, { allowPrivate })) callback(null, socket);
        else {
          socket.destroy();
          callback(new AddressRefused('the provider resolves to an address that is not public'), null);
        }
      });
    },
  });
};

/** More characters than any real reply has. A longer answer is an error. */
const MAX_TEXT = 16_000;
const MAX_BYTES = 2_000_000;
const MAX_ATTEMPTS = 2;

type ProviderFailure =
  | 'address_refused'
  | 'connection'
  | 'timeout'
  | 'stopping'
  | 'status'
  | 'content_type'
  | 'bad_json'
  | 'cut_off'
  | 'empty'
  | 'too_large'
  | 'reported'
  | 'paused';

export class ProviderError extends Error {
  override name = 'ProviderError';
  readonly kind: ProviderFailure;
  readonly status: number | null;
  constructor(kind: ProviderFailure, options: { status?: number; cause?: unknown } = {}) {
    super(`the provider failed: ${kind}`, { cause: options.cause });
    this.kind = kind;
    this.status = options.status ?? null;
  }
}

/** The known finish reasons. They are stored and logged, so an unknown value of a provider becomes `other`. */
const FINISHES = ['stop', 'length', 'tool_calls', 'content_filter'] as const;
type Finish = (typeof FINISHES)[number] | 'other';
const finishOf = (reason: string): Finish => FINISHES.find((known) => known === reason) ?? 'other';

const TOKENS_MAX = 100_000_000;
const tokens = z.int().min(0).max(TOKENS_MAX);
const Usage = z.object({ prompt_tokens: tokens, completion_tokens: tokens });
const Chunk = z.object({
  choices: z
    .array(
      z.object({
        delta: z.object({ content: z.string().nullish() }).nullish(),
        finish_reason: z.string().nullish(),
      }),
    )
    .default([]),
  usage: Usage.nullish().catch(null),
  error: z.unknown().optional(),
});

export type Completion = { finish: Finish; usage: { prompt: number; completion: number } | null; firstMs: number };

type Call = {
  url: string;
  headers: Record<string, string>;
  body: string;
  dispatcher: Dispatcher;
  signal: AbortSignal;
  onText: (text: string) => void;
};

type Reading = { finish: Finish | null; done: boolean; text: number; usage: Completion['usage'] };

const readChunk = (data: string, reading: Reading, onText: (text: string) => void): void => {
  if (data === '[DONE]') {
    reading.done = true;
    return;
  }
  let json: unknown;
  try {
    json = JSON.parse(data);
  } catch (cause) {
    throw new ProviderError('bad_json', { cause });
  }
  const parsed = Chunk.safeParse(json);
  if (!parsed.success) throw new ProviderError('bad_json');
  const { choices, usage, error } = parsed.data;
  if (error != null) throw new ProviderError('reported');
  if (usage) reading.usage = { prompt: usage.prompt_tokens, completion: usage.completion_tokens };
  const [choice] = choices;
  const text = choice?.delta?.content ?? '';
  if (choice?.finish_reason != null) reading.finish = finishOf(choice.finish_reason);
  reading.text += text.length;
  if (reading.text > MAX_TEXT) throw new ProviderError('too_large');
  if (text !== '') onText(text);
};

/** Sends the request, and repeats it once if the connection failed before the answer began. */
const send = async ({ url, headers, body, dispatcher, signal }: Call): Promise<Dispatcher.ResponseData> => {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await request(url, { method: 'POST', headers, body, dispatcher, signal });
    } catch (cause) {
      if ((cause as Error).name === 'AddressRefused') throw new ProviderError('address_refused', { cause });
      if (attempt >= MAX_ATTEMPTS || signal.aborted) throw new ProviderError('connection', { cause });
    }
  }
};

/** Reads one streamed chat completion. Any other answer causes a `ProviderError`. */
const complete = async (call: Call): Promise<Completion> => {
  const startedAt = performance.now();
  const { statusCode, headers, body } = await send(call);
  try {
    if (statusCode !== 200) throw new ProviderError('status', { status: statusCode });
    if (!/^text\/event-stream\b/i.test(String(headers['content-type']))) throw new ProviderError('content_type');
    const reading: Reading = { finish: null, done: false, text: 0, usage: null };
    let firstMs: number | null = null;
    const parser = createParser({
      onEvent: ({ data }) => {
        if (reading.done) return;
        readChunk(data, reading, (text) => {
          firstMs ??= performance.now() - startedAt;
          call.onText(text);
        });
      },
    });
    const decoder = new TextDecoder();
    let bytes = 0;
    for await (const chunk of body as AsyncIterable<Uint8Array>) {
      bytes += chunk.length;
      if (bytes > MAX_BYTES) throw new ProviderError('too_large');
      parser.feed(decoder.decode(chunk, { stream: true }));
      if (reading.done) break;
    }
    if (!reading.done && reading.finish === null) throw new ProviderError('cut_off');
    if (reading.text === 0) throw new ProviderError('empty');
    if (reading.finish === 'content_filter') throw new ProviderError('reported');
    return { finish: reading.finish ?? 'stop', usage: reading.usage, firstMs: firstMs ?? 0 };
  } catch (cause) {
    throw cause instanceof ProviderError ? cause : new ProviderError('cut_off', { cause });
  } finally {
    // A body that was not read to its end makes the connection unusable.
    if (!body.readableEnded) body.on('error', () => undefined).destroy();
  }
};

/**
 * Reads a completion with one deadline for connection, request and answer. After the deadline, or once `stop` aborts,
 * `onText` is no longer called.
 */
export const completeInTime = (
  call: Omit<Call, 'signal'>,
  { timeoutMs, stop }: { timeoutMs: number; stop: AbortSignal },
): Promise<Completion> =>
  withDeadline(
    (signal) => {
      const onText = (text: string): void => {
        if (!signal.aborted) call.onText(text);
      };
      return complete({ ...call, signal, onText });
    },
    timeoutMs,
    { late: () => new ProviderError('timeout'), signal: stop },
  );
