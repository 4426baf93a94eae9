import type { ChatRequest, ChatResponse } from './types.ts';

/** The key's window, and what the way to the service may shift it by. */
const WINDOW_MS = 62_000;

export type SendQueueOptions = {
  /** The limit of the key. The default is 60, as that of a new key. */
  perMinute?: number;
  /** How many sessions have a message on its way at once. The default is 16. */
  sessions?: number;
  /** How many messages may wait. One more is refused with a `QueueFullError`. The default is 10,000. */
  most?: number;
};

/** The options of `Parley.chat`. */
type ChatOptions = { signal?: AbortSignal; timeoutMs?: number; idempotencyKey?: string; include?: 'sources' };
/** What the queue needs of `Parley`, which exports it. */
type Chat = { chat: (message: ChatRequest, options?: ChatOptions) => Promise<ChatResponse> };

type Waiting = {
  message: ChatRequest;
  options: ChatOptions;
  resolve: (reply: ChatResponse) => void;
  reject: (cause: unknown) => void;
  /** Called when the caller aborts. */
  leave: () => void;
};

/** There is no room in the queue for a further message. */
export class QueueFullError extends Error {
  override readonly name = 'QueueFullError';
}

/**
 * Sends messages for many sessions. Those of one session are sent one after the other, in the order in which they were
 * given. It stays under the key's limit, and after a 429 it waits as long as the service says; no message is lost or
 * sent twice by that.
 */
export class SendQueue {
  readonly #parley: Chat;
  readonly #perMinute: number;
  readonly #sessions: number;
  readonly #most: number;
  /** The sessions that wait, in turn, each with its messages. */
  readonly #waiting = new Map<string, Waiting[]>();
  readonly #busy = new Set<string>();
  /** These times are of a clock that nobody sets. */
  readonly #pausedUntil = new Map<string, number>();
  #started: number[] = [];
  #size = 0;
  #allPausedUntil = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #idle: (() => void)[] = [];

  constructor(parley: Chat, { perMinute = 60, sessions = 16, most = 10_000 }: SendQueueOptions = {}) {
    this.#parley = parley;
    this.#perMinute = perMinute;
    this.#sessions = sessions;
    this.#most = most;
  }

  /** How many messages have no reply yet. */
  get size(): number {
    return this.#size;
  }

  /** Resolves with the reply, after those of all earlier messages of the session. */
  send(message: ChatRequest, options: ChatOptions = {}): Promise<ChatResponse> {
    if (this.#size >= this.#most) return Promise.reject(new QueueFullError(`${this.#most} messages wait already`));
    if (options.signal?.aborted) return Promise.reject(options.signal.reason as Error); // what the caller gave to `abort`
    return new Promise((resolve, reject) => {
      // A repetition has the same key, so it is never a second message.
      const keyed = { ...options, idempotencyKey: options.idempotencyKey ?? crypto.randomUUID() };
      const own = this.#waiting.get(message.session_id) ?? [];
      this.#waiting.set(message.session_id, own);
      const one: Waiting = {
        message,
        options: keyed,
        resolve,
        reject,
        leave: () => this.#leave(message.session_id, one),
      };
      options.signal?.addEventListener('abort', one.leave, { once: true });
      own.push(one);
      this.#size += 1;
      this.#next();
    });
  }

  /** Resolves when no message waits. */
  idle(): Promise<void> {
    return this.#size === 0 ? Promise.resolve() : new Promise((resolve) => this.#idle.push(resolve));
  }

  #next(): void {
    if (this.#size === 0) for (const resolve of this.#idle.splice(0)) resolve();
    clearTimeout(this.#timer);
    const now = performance.now();
    this.#started = this.#started.filter((at) => now - at < WINDOW_MS);
    let wakeAt = Number.POSITIVE_INFINITY;
    for (const [session, own] of this.#waiting) {
      const first = this.#started.at(-this.#perMinute);
      const freeAt = Math.max(this.#allPausedUntil, first === undefined ? 0 : first + WINDOW_MS);
      if (freeAt > now) {
        wakeAt = Math.min(wakeAt, freeAt);
        break;
      }
      if (this.#busy.size >= this.#sessions) break;
      if (this.#busy.has(session)) continue;
      const ownAt = this.#pausedUntil.get(session) ?? 0;
      if (ownAt > now) {
        wakeAt = Math.min(wakeAt, ownAt);
        continue;
      }
      const [one] = own;
      if (one) void this.#send(session, own, one);
    }
    if (Number.isFinite(wakeAt)) this.#timer = setTimeout(() => this.#next(), Math.max(1, wakeAt - now));
  }

  async #send(session: string, own: Waiting[], one: Waiting): Promise<void> {
    this.#busy.add(session);
    this.#started.push(performance.now());
    try {
      const reply = await this.#parley.chat(one.message, one.options);
      this.#end(session, own, one);
      one.resolve(reply);
    } catch (cause) {
      if (one.options.signal?.aborted || !this.#mustWait(session, cause)) {
        this.#end(session, own, one);
        one.reject(cause);
      }
    }
    this.#busy.delete(session);
    this.#next();
  }

  /** The message has its reply, or failed. Its session goes behind the others. */
  #end(session: string, own: Waiting[], one: Waiting): void {
    this.#remove(own, one);
    this.#pausedUntil.delete(session);
    this.#waiting.delete(session);
    if (own.length > 0) this.#waiting.set(session, own);
  }

  /** A message that is on its way ends by itself when its caller aborts. Another one need not wait for its turn. */
  #leave(session: string, one: Waiting): void {
    const own = this.#waiting.get(session) ?? [];
    if (own[0] === one && this.#busy.has(session)) return;
    this.#remove(own, one);
    if (own.length === 0) {
      this.#waiting.delete(session);
      this.#pausedUntil.delete(session);
    }
    one.reject(one.options.signal?.reason);
    this.#next();
  }

  #remove(own: Waiting[], one: Waiting): void {
    own.splice(own.indexOf(one), 1);
    one.options.signal?.removeEventListener('abort', one.leave);
    this.#size -= 1;
  }

  /** True if the message is sent again once the limit of the key, or of its session, allows it. */
  #mustWait(session: string, cause: unknown): boolean {
    const { code, retryAfter } = (cause ?? {}) as { code?: string; retryAfter?: number | null }; // a `ParleyError`, or any other
    if (retryAfter == null) return false;
    const until = performance.now() + retryAfter * 1000;
    if (code === 'rate_limited') this.#allPausedUntil = Math.max(this.#allPausedUntil, until);
    else if (code === 'session_busy') this.#pausedUntil.set(session, until);
    else return false;
    return true;
  }
}
