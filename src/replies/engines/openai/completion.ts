import { createParser } from 'eventsource-parser';
import { type Dispatcher, request } from 'undici';
import * as z from 'zod';
import { withDeadline } from '../../../platform/process/deadline.ts';
import { createSlots } from '../../../platform/process/slots.ts';
import { Flood } from '../../../platform/http/address-guard.ts';

/** More characters than any real reply has. A longer answer is an error. */
const MAX_TEXT = 16_000;
const MAX_BYTES = 2_000_000;
/** The maximum number of events of an answer, and of its chunks: more than a reply has letters. */
const MAX_EVENTS = 20_000;
/** An event may hold the whole reply, with every letter escaped. */
const MAX_EVENT_CHARS = 128 * 1024;
const MAX_ATTEMPTS = 2;

/** How much of an answer is read in one step. */
const PART_BYTES = 8 * 1024;
/** In one turn of the event loop, parts are read for about this time. */
const READ_MS = 2;
/**
 * One part is read at a time, and assistants take turns. So many full streams, of one assistant or of many, delay
 * others little.
 */
const reading = createSlots(({ inUse }) => inUse === 0);
let spentMs = 0;

const readInTurn = async (assistantId: string, read: () => void): Promise<void> => {
  const slot = await reading.acquire(assistantId);
  if (!slot) throw new ProviderError('too_large');
  const since = performance.now();
  try {
    read();
  } finally {
    if (spentMs === 0) setImmediate(() => (spentMs = 0));
    spentMs += performance.now() - since;
    if (spentMs < READ_MS) slot.release();
    else setImmediate(slot.release);
  }
};

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
  | 'paused'
  | 'budget_used_up';

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

/** Errors of a connection that was never made. */
const NOT_CONNECTED = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
]);

/** True if the provider has certainly made no answer that costs something. */
export const costsNothing = ({ kind, cause }: ProviderError): boolean =>
  kind === 'address_refused' ||
  kind === 'status' ||
  (kind === 'connection' && NOT_CONNECTED.has(String((cause as { code?: unknown } | undefined)?.code)));

/** The known finish reasons. They are stored and logged, so an unknown value of a provider becomes `other`. */
const FINISHES = ['stop', 'length', 'tool_calls', 'content_filter'] as const;
type Finish = (typeof FINISHES)[number] | 'other';
const finishOf = (reason: string): Finish => FINISHES.find((known) => known === reason) ?? 'other';

const TOKENS_MAX = 100_000_000;
const tokens = z.int().min(0).max(TOKENS_MAX);
const Usage = z.object({ prompt_tokens: tokens, completion_tokens: tokens });
const Choice = z.object({
  delta: z.object({ content: z.string().nullish() }).nullish(),
  finish_reason: z.string().nullish(),
});
const Chunk = z.object({
  // Only the first choice is asked for and read.
  choices: z.preprocess((all) => (Array.isArray(all) ? all.slice(0, 1) : all), z.array(Choice).default([])),
  usage: Usage.nullish().catch(null),
  error: z.unknown().optional(),
});

export type Completion = { finish: Finish; usage: { prompt: number; completion: number } | null; firstMs: number };

type Call = {
  assistantId: string;
  url: string;
  headers: Record<string, string>;
  /** A string would be held twice: undici makes a buffer of it. */
  body: Buffer | string;
  dispatcher: Dispatcher;
  signal: AbortSignal;
  onText: (text: string) => void;
  /** Called before a request is repeated that the provider may have got. False if it must not be. */
  mayRepeat: () => Promise<boolean>;
};

type Reading = { finish: Finish | null; done: boolean; text: number; events: number; usage: Completion['usage'] };

const readEvent = (data: string, reading: Reading, onText: (text: string) => void): void => {
  reading.events += 1;
  if (reading.events > MAX_EVENTS) throw new ProviderError('too_large');
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
const send = async ({ url, headers, body, dispatcher, signal, mayRepeat }: Call): Promise<Dispatcher.ResponseData> => {
  const options = { method: 'POST', headers, body, dispatcher, signal } as const;
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await request(url, options);
    } catch (cause) {
      if ((cause as Error).name === 'AddressRefused') throw new ProviderError('address_refused', { cause });
      const failure = new ProviderError('connection', { cause });
      if (attempt >= MAX_ATTEMPTS || signal.aborted || cause instanceof Flood) throw failure;
      if (!costsNothing(failure) && !(await mayRepeat())) throw failure;
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
    const reading: Reading = { finish: null, done: false, text: 0, events: 0, usage: null };
    let firstMs: number | null = null;
    const parser = createParser({
      onEvent: ({ data }) => {
        if (reading.done) return;
        readEvent(data, reading, (text) => {
          firstMs ??= performance.now() - startedAt;
          call.onText(text);
        });
      },
      maxBufferSize: MAX_EVENT_CHARS,
      onError: ({ type }) => {
        if (type === 'max-buffer-size-exceeded') throw new ProviderError('too_large');
      },
    });
    const decoder = new TextDecoder();
    const read = (part: Uint8Array): void => {
      if (!reading.done) parser.feed(decoder.decode(part, { stream: true }));
    };
    let [bytes, chunks] = [0, 0];
    for await (const chunk of body as AsyncIterable<Uint8Array>) {
      bytes += chunk.length;
      chunks += 1;
      if (bytes > MAX_BYTES || chunks > MAX_EVENTS) throw new ProviderError('too_large');
      for (let from = 0; from < chunk.length && !reading.done; from += PART_BYTES)
        await readInTurn(call.assistantId, () => read(chunk.subarray(from, from + PART_BYTES)));
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
