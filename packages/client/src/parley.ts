import type {
  AcceptedTurn,
  AttributesInput,
  ChatRequest,
  ChatResponse,
  Conversation,
  ConversationHistory,
  ErrorCode,
  EscalateRequest,
  Escalation,
  GetConversationQuery,
  ListConversationsQuery,
  ListEventsAnswer,
  ListEventsQuery,
  Message,
  ParleyEvent,
  SetAttributesAnswer,
  Turn,
} from './types.ts';

export type * from './types.ts';
export { QueueFullError, SendQueue, type SendQueueOptions } from './send-queue.ts';
export {
  verifyWebhook,
  type VerifyOptions,
  type WebhookRefusal,
  type WebhookVerdict,
} from './verify-webhook.ts';

/** The service answers a caller within 30 s, so a try that takes longer has lost its connection. */
const TRY_MS = 35_000;
const LONGEST_POLL_S = 25;
const PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5_000;

/** `connection`: no answer, or a broken one. `timeout`: the time of the call is over. */
export type ParleyErrorCode = ErrorCode | 'connection' | 'timeout';

type ErrorParts = {
  code: ParleyErrorCode;
  status?: number | null;
  field?: string;
  details?: { field: string; code: string; message: string }[];
  requestId?: string | null;
  retryAfter?: number | null;
  cause?: unknown;
};

/** Why a call failed. The service may add codes, so a `switch` over them needs a default. */
export class ParleyError extends Error {
  override readonly name = 'ParleyError';
  readonly code: ParleyErrorCode;
  /** The status of the response. Null if there was none. */
  readonly status: number | null;
  /** The first wrong field of the request. */
  readonly field: string | undefined;
  readonly details: readonly { field: string; code: string; message: string }[];
  /** For questions to the service's operators. */
  readonly requestId: string | null;
  /** Seconds after which to try again. */
  readonly retryAfter: number | null;

  constructor(message: string, parts: ErrorParts) {
    super(message, { cause: parts.cause });
    this.code = parts.code;
    this.status = parts.status ?? null;
    this.field = parts.field;
    this.details = parts.details ?? [];
    this.requestId = parts.requestId ?? null;
    this.retryAfter = parts.retryAfter ?? null;
  }
}

export type ParleyOptions = {
  /** The address of the service, such as `https://parley.example.com`. */
  url: string;
  /** An API key of the assistant: `sk_…`. It belongs to servers, never to a page or an app. */
  apiKey: string;
  /** Milliseconds that a call may take with all its tries. The default is 60,000. */
  timeoutMs?: number;
  /** How often a failed try is repeated. The default is 3. */
  retries?: number;
  /** Replaces the global `fetch`, for example to use a proxy. */
  fetch?: typeof fetch;
};

export type CallOptions = { signal?: AbortSignal; timeoutMs?: number };
export type SendOptions = CallOptions & {
  /** Made for each call by default. Give your own to make the same send safe in another process. */
  idempotencyKey?: string;
  /** `sources`: the reply also lists the sources that it is taken from. */
  include?: 'sources';
};

/**
 * A part of a streamed reply. `text` is the new piece and `reply` the whole text so far. With a higher `attempt`, the
 * text starts again from nothing. Only `message` is final.
 */
export type StreamPart =
  | { event: 'accepted'; turnId: string; conversationId: string }
  | { event: 'delta'; text: string; reply: string; attempt: number }
  | ({ event: 'message' } & ChatResponse);

type Call = {
  method: string;
  path: string;
  query?: Record<string, string | number | undefined>;
  headers?: Record<string, string>;
  body?: unknown;
};

const pause = (ms: number, signal: AbortSignal | undefined): Promise<void> =>
  new Promise((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer);
      // oxlint-disable-next-line typescript/prefer-promise-reject-errors -- it is what the caller gave to `abort`
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener('abort', stop, { once: true });
  });

const secondsIn = (header: string | null): number | null =>
  header !== null && /^\d{1,6}$/.test(header) ? Number(header) : null;

const errorOf = (response: Response, text: string): ParleyError => {
  const { status, headers } = response;
  const parts = { status, requestId: headers.get('x-request-id'), retryAfter: secondsIn(headers.get('retry-after')) };
  try {
    const { error } = JSON.parse(text) as { error: ErrorParts & { message: string } };
    return new ParleyError(error.message, { ...parts, ...error });
  } catch {
    // The service always answers with JSON, so this comes from a proxy.
    const code = status === 429 ? 'rate_limited' : status >= 502 ? 'unavailable' : 'internal_error';
    return new ParleyError(`The response with status ${status} is not the service's.`, { ...parts, code });
  }
};

/** The tries of one call: its time, how often it may fail, and the pauses. */
class Tries {
  failed = 0;
  readonly #endsAt: number;
  readonly #retries: number;
  readonly #signal: AbortSignal | undefined;

  constructor({ timeoutMs, retries, signal }: { timeoutMs: number; retries: number; signal: AbortSignal | undefined }) {
    this.#endsAt = Date.now() + timeoutMs;
    this.#retries = retries;
    this.#signal = signal;
    signal?.throwIfAborted();
  }

  /** Begins a try. Its signal aborts when the caller aborts, or when nothing was heard for too long. */
  start(): { signal: AbortSignal; heard: () => void; end: () => void } {
    const controller = new AbortController();
    const give = (): void => controller.abort(this.#signal?.reason);
    const late = (): void => controller.abort(new ParleyError('The call took too long.', { code: 'timeout' }));
    const wait = () => setTimeout(late, Math.max(0, Math.min(TRY_MS, this.#endsAt - Date.now())));
    let timer = wait();
    this.#signal?.addEventListener('abort', give, { once: true });
    return {
      signal: controller.signal,
      heard: () => {
        clearTimeout(timer);
        timer = wait();
      },
      end: () => {
        clearTimeout(timer);
        this.#signal?.removeEventListener('abort', give);
      },
    };
  }

  /** Waits until the next try. Throws if another try would not help, or there is none left. */
  async pauseAfter(cause: unknown): Promise<void> {
    this.#signal?.throwIfAborted();
    const error =
      cause instanceof ParleyError
        ? cause
        : new ParleyError('There was no complete answer.', { code: 'connection', cause });
    const { status, retryAfter } = error;
    const again = status === null || status === 429 || status >= 500;
    // The first repetition is made at once. After a broken connection it joins the turn that is already being answered.
    const growing = this.failed === 0 ? 0 : Math.min(LONGEST_PAUSE_MS, PAUSE_MS * 4 ** this.failed);
    const ms = retryAfter === null ? growing * (0.5 + Math.random() / 2) : retryAfter * 1000;
    this.failed += 1;
    if (!again || this.failed > this.#retries || Date.now() + ms >= this.#endsAt) throw error;
    if (ms > 0) await pause(ms, this.#signal);
  }
}

/** The server-sent events of a response, by name. Comments only show that the connection lives. */
async function* eventsOf(response: Response, heard: () => void): AsyncGenerator<{ event: string; data: string }> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  let text = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      const blocks = (text + value).split('\n\n');
      text = blocks.pop() ?? '';
      for (const block of blocks) {
        const found = /^event: ([^\n]*)\ndata: ([^\n]*)$/.exec(block);
        if (found) yield { event: found[1] ?? '', data: found[2] ?? '' };
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/**
 * Calls the chat API with an API key. Every call is repeated when that is safe and may help: after a broken connection,
 * 429, and 5xx. A send has an idempotency key, so a visitor is never answered twice.
 */
export class Parley {
  readonly #url: string;
  readonly #apiKey: string;
  readonly #timeoutMs: number;
  readonly #retries: number;
  readonly #fetch: typeof fetch;

  constructor({ url, apiKey, timeoutMs = 60_000, retries = 3, fetch: by = globalThis.fetch }: ParleyOptions) {
    if (!apiKey) throw new TypeError('Parley needs an API key');
    let end = url.length;
    while (url[end - 1] === '/') end -= 1;
    this.#url = url.slice(0, end);
    this.#apiKey = apiKey;
    this.#timeoutMs = timeoutMs;
    this.#retries = retries;
    this.#fetch = (...args) => by(...args);
  }

  /** Sends a visitor's message and waits for the reply. */
  async chat(message: ChatRequest, options: SendOptions = {}): Promise<ChatResponse> {
    return this.#json(sendCall(message, options), options);
  }

  /** Sends a visitor's message and does not wait for the reply: see `waitForTurn`. */
  async send(message: ChatRequest, options: SendOptions = {}): Promise<AcceptedTurn> {
    return this.#json(sendCall(message, options, { Prefer: 'respond-async' }), options);
  }

  /** Sends a visitor's message and gives the reply piece by piece. After a broken connection it continues by itself. */
  async *stream(message: ChatRequest, options: SendOptions = {}): AsyncGenerator<StreamPart, void> {
    const call = sendCall(message, options, { Accept: 'text/event-stream' });
    const tries = this.#tries(options);
    let accepted = false;
    let attempt = 0;
    for (;;) {
      const one = tries.start();
      try {
        const response = await this.#respond(call, one.signal);
        let theirs = 0;
        let reply = '';
        for await (const { event, data } of eventsOf(response, one.heard)) {
          const body = JSON.parse(data) as never;
          if (event === 'accepted' && !accepted) {
            accepted = true;
            yield { event, ...(body as { turnId: string; conversationId: string }) };
          } else if (event === 'delta') {
            const delta = body as { text: string; attempt: number };
            // A new connection starts the text again too.
            if (delta.attempt > theirs) {
              theirs = delta.attempt;
              attempt += 1;
              reply = '';
            }
            reply += delta.text;
            yield { event, text: delta.text, reply, attempt };
          } else if (event === 'message') {
            return yield { event, ...(body as ChatResponse) };
          } else if (event === 'error') {
            const { error } = body as { error: ErrorParts & { message: string } };
            throw new ParleyError(error.message, { ...error, status: error.code === 'not_found' ? 404 : 500 });
          }
        }
        throw new ParleyError('The stream ended early.', { code: 'connection' });
      } catch (cause) {
        one.end();
        await tries.pauseAfter(one.signal.aborted ? one.signal.reason : cause);
      } finally {
        one.end();
      }
    }
  }

  /** Reads a turn. It is kept for 24 hours after its end. */
  async turn(turnId: string, options: CallOptions & { include?: 'sources' } = {}): Promise<Turn> {
    return this.#json(read(`/turns/${encodeURIComponent(turnId)}`, { include: options.include }), options);
  }

  /** Waits until a turn is `answered` or `failed`. The same message, sent again, resumes a failed one. */
  async waitForTurn(turnId: string, options: CallOptions & { include?: 'sources' } = {}): Promise<Turn> {
    const endsAt = Date.now() + (options.timeoutMs ?? this.#timeoutMs);
    for (let waited = 500; ; waited = Math.min(3_000, waited + 500)) {
      const left = endsAt - Date.now();
      const turn = await this.turn(turnId, { ...options, timeoutMs: left });
      if (turn.status === 'answered' || turn.status === 'failed') return turn;
      if (left <= waited) throw new ParleyError('The turn has no reply yet.', { code: 'timeout' });
      await pause(waited, options.signal);
    }
  }

  /** Reads a conversation with one page of its messages. With `after_seq` and `wait` it is a long poll. */
  async conversation(
    conversationId: string,
    query: GetConversationQuery = {},
    options: CallOptions = {},
  ): Promise<ConversationHistory> {
    return this.#json(read(pathOf(conversationId), query), options);
  }

  /** All messages of a conversation, oldest first. The next page is read when it is needed. */
  messages(
    conversationId: string,
    query: GetConversationQuery = {},
    options: CallOptions = {},
  ): AsyncGenerator<Message> {
    return this.#list({ path: pathOf(conversationId), query, field: 'messages' }, options);
  }

  /**
   * Yields new final messages by long polls until the caller stops. Give the highest `seq` that you have, or 0 for all.
   * Both messages of a turn have one `seq`.
   */
  async *follow(conversationId: string, afterSeq: number, options: CallOptions = {}): AsyncGenerator<Message, never> {
    for (let after_seq = afterSeq; ; ) {
      const since = Date.now();
      const known = after_seq;
      const query = { after_seq: known, wait: LONGEST_POLL_S };
      for await (const message of this.messages(conversationId, query, options)) {
        after_seq = Math.max(after_seq, message.seq ?? 0);
        yield message;
      }
      // A service process that is stopping answers early, without messages.
      if (after_seq === known && Date.now() - since < 1_000) await pause(1_000, options.signal);
    }
  }

  /** The assistant's conversations without messages, the oldest change first. */
  conversations(query: ListConversationsQuery = {}, options: CallOptions = {}): AsyncGenerator<Conversation> {
    return this.#list({ path: '/conversations', query, field: 'conversations' }, options);
  }

  /**
   * A page of ended deliveries with their events, for comparing a ledger. Continue with `after: page.cursor`, now or
   * later: the list is some seconds behind, and skips nothing.
   */
  async events(query: ListEventsQuery = {}, options: CallOptions = {}): Promise<ListEventsAnswer> {
    return this.#json(read('/events', query), options);
  }

  /** Hands a conversation to a person. */
  async escalate(conversationId: string, body: EscalateRequest = {}, options: CallOptions = {}): Promise<Escalation> {
    return this.#json(post(`${pathOf(conversationId)}/escalate`, body), options);
  }

  /** Tells operators facts about a visitor. Null removes a fact. Facts that are not named are kept. */
  async setAttributes(
    conversationId: string,
    attributes: AttributesInput,
    options: CallOptions = {},
  ): Promise<SetAttributesAnswer> {
    return this.#json(post(`${pathOf(conversationId)}/attributes`, attributes), options);
  }

  /** Erases a conversation for good. */
  async erase(conversationId: string, options: CallOptions = {}): Promise<void> {
    const tries = this.#tries(options);
    const call = { ...read(pathOf(conversationId)), method: 'DELETE' };
    await this.#repeat(tries, async (signal) => {
      await this.#respond(call, signal);
    }).catch((cause: unknown) => {
      // An earlier try may have erased the conversation, and only its answer was lost.
      if (!(cause instanceof ParleyError && cause.code === 'not_found' && tries.failed > 1)) throw cause;
    });
  }

  /** The items of all pages of a list. `field`: where a page has its items. */
  async *#list<Item>(
    { path, query, field }: { path: string; query: Record<string, string | number | undefined>; field: string },
    options: CallOptions,
  ): AsyncGenerator<Item, void> {
    for (let cursor: string | null | undefined; cursor !== null; ) {
      const page = await this.#json<Record<string, unknown>>(
        read(path, cursor ? { ...query, cursor } : query),
        options,
      );
      yield* page[field] as Item[];
      cursor = page['nextCursor'] as string | null;
    }
  }

  #tries(options: CallOptions): Tries {
    const { timeoutMs = this.#timeoutMs, signal } = options;
    return new Tries({ timeoutMs, retries: this.#retries, signal });
  }

  #json<Body>(call: Call, options: CallOptions): Promise<Body> {
    return this.#repeat(this.#tries(options), async (signal) => {
      const response = await this.#respond(call, signal);
      return (await response.json()) as Body;
    });
  }

  async #repeat<Result>(tries: Tries, once: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    for (;;) {
      const one = tries.start();
      try {
        return await once(one.signal);
      } catch (cause) {
        one.end();
        await tries.pauseAfter(one.signal.aborted ? one.signal.reason : cause);
      } finally {
        one.end();
      }
    }
  }

  async #respond({ method, path, query = {}, headers, body }: Call, signal: AbortSignal): Promise<Response> {
    const given = Object.entries(query).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, String(value)]],
    );
    const search = given.length === 0 ? '' : `?${new URLSearchParams(given as [string, string][]).toString()}`;
    const response = await this.#fetch(`${this.#url}/api/v1${path}${search}`, {
      method,
      headers: {
        Authorization: `Bearer ${this.#apiKey}`,
        ...(body !== undefined && { 'Content-Type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      signal,
    });
    if (!response.ok) throw errorOf(response, await response.text());
    return response;
  }
}

const pathOf = (conversationId: string): string => `/conversations/${encodeURIComponent(conversationId)}`;

const read = (path: string, query: Call['query'] = {}): Call => ({ method: 'GET', path, query });

const post = (path: string, body: unknown): Call => ({ method: 'POST', path, body });

const sendCall = (message: ChatRequest, options: SendOptions, headers: Record<string, string> = {}): Call => ({
  ...post('/chat', message),
  query: { include: options.include },
  headers: { ...headers, 'Idempotency-Key': options.idempotencyKey ?? crypto.randomUUID() },
});

/** Reads the body of an event whose signature was verified, or the `envelope` of an event in the list. */
export const parseEvent = (body: Uint8Array | string | Record<string, unknown>): ParleyEvent =>
  (typeof body === 'string'
    ? JSON.parse(body)
    : body instanceof Uint8Array
      ? JSON.parse(new TextDecoder().decode(body))
      : body) as ParleyEvent;
