import { type Action, type Door, type Page, Refused, type Status, type User, type WireMessage } from './door.ts';

/** A message as it is shown. `dom` is kept when the service’s copy replaces the browser’s. */
export type Item = {
  dom: string;
  order: number;
  messageId: string | null;
  turnId: string | null;
  seq: number | null;
  role: WireMessage['role'];
  text: string;
  actions: Action[];
  state: 'done' | 'sending' | 'failed' | 'writing';
  /** The idempotency key of a message that this browser sent. */
  key?: string;
};

type Entry = { key: string; text: string; at: number };

const AGAIN_FIRST_MS = 1_000;
const AGAIN_MOST_MS = 30_000;
const WAIT_S = 25;
/**
 * Older messages are not sent again: their idempotency keys may have expired, so the service could store them twice.
 */
const KEPT_MS = 23 * 3_600_000;
/** The pause after an answer without news for which the service did not wait. */
const REST_MS = 5_000;

/** The browser’s storage, or memory where a browser forbids it. */
const storageOf = (open: () => Storage): Storage => {
  try {
    const storage = open();
    storage.getItem('');
    return storage;
  } catch {
    const kept = new Map<string, string>();
    return {
      get length() {
        return kept.size;
      },
      key: (nth) => [...kept.keys()][nth] ?? null,
      getItem: (name) => kept.get(name) ?? null,
      setItem: (name, value) => void kept.set(name, value),
      removeItem: (name) => void kept.delete(name),
      clear: () => kept.clear(),
    };
  }
};

const sleep = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
  });

/**
 * A visitor’s conversation: sends what is written, once and in order, and follows what others say. A message is kept in
 * the browser until the service has accepted it, under a key that makes sending it again safe.
 */
export class Session {
  items: Item[] = [];
  status: Status = 'open';
  opensAt: string | null = null;
  online = true;
  hasEarlier = false;
  /** True if only a reload brings a new signature of the user’s id. */
  needsReload = false;
  /** False until the history of a known visitor has been read. */
  isRead = false;

  readonly #door: Door;
  readonly #user: User | null;
  readonly #storage: Storage;
  readonly #name: string;
  readonly #changed: (news: Item[]) => void;
  readonly #ended = new AbortController();
  #token: string | null;
  #starting: Promise<string> | null = null;
  #conversationId: string | null = null;
  #seq = 0;
  #order = 0;
  #sending = false;
  #following = false;
  #tries = 0;
  #wake = new AbortController();

  constructor(door: Door, given: { assistantId: string; user: User | null; changed: (news: Item[]) => void }) {
    this.#door = door;
    this.#user = given.user;
    this.#changed = given.changed;
    // The next user of this computer must find nothing of a signed-in user.
    this.#storage = storageOf(() => (given.user ? sessionStorage : localStorage));
    this.#name = `parley:${given.assistantId}${given.user ? `:${given.user.id}` : ''}`;
    this.#token = given.user ? null : this.#storage.getItem(this.#name);
    const { signal } = this.#ended;
    const look = (): void => {
      this.online = navigator.onLine;
      this.#tries = 0;
      this.#wake.abort();
      this.#changed([]);
    };
    addEventListener('online', look, { signal });
    addEventListener('offline', look, { signal });
    document.addEventListener('visibilitychange', look, { signal });
    addEventListener('storage', ({ key, newValue }) => this.#adopt(key, newValue), { signal });
    this.online = navigator.onLine;
    for (const { key, text } of this.#kept()) this.#add(key, text);
    if (this.#token) void this.#follow();
    else this.isRead = true;
    void this.#sendAll();
  }

  get isKnown(): boolean {
    return this.#token !== null;
  }

  /** Ends the session on this page. The conversation is kept. */
  end(): void {
    this.#ended.abort();
    this.#wake.abort();
  }

  /** Reads what a signed-in user has said elsewhere. */
  resume(): void {
    if (this.#user && !this.#token)
      void this.#start().then(
        () => this.#follow(),
        () => undefined,
      );
  }

  say(text: string): void {
    const entry: Entry = { key: crypto.randomUUID(), text, at: Date.now() };
    try {
      this.#storage.setItem(`${this.#name}:out:${entry.key}`, JSON.stringify(entry));
    } catch {
      // The storage is full: the message is sent all the same.
    }
    this.#add(entry.key, text);
    this.#changed([]);
    void this.#sendAll();
  }

  again(item: Item): void {
    item.state = 'sending';
    this.#tries = 0;
    this.#changed([]);
    void this.#sendAll();
  }

  async escalate(reason: string): Promise<void> {
    if (this.#token) await this.#door.escalate(this.#token, reason).catch(() => undefined);
    this.#wake.abort();
  }

  async readEarlier(): Promise<void> {
    const first = this.items.find(({ seq }) => seq !== null)?.seq;
    if (!first || !this.#token) return;
    const page = await this.#door.read(this.#token, { before: first }).catch(() => null);
    if (!page) return;
    this.hasEarlier = page.hasEarlier;
    this.#take(page.messages);
    this.#changed([]);
  }

  /** Another tab has begun the conversation, or has found that it was erased. */
  #adopt(name: string | null, token: string | null): void {
    if (name !== this.#name || token === this.#token || this.#user) return;
    this.#forget();
    this.#token = token;
    if (token) void this.#follow();
    this.#changed([]);
  }

  #kept(): Entry[] {
    const names = Array.from({ length: this.#storage.length }, (_, nth) => this.#storage.key(nth) ?? '');
    return names
      .filter((name) => name.startsWith(`${this.#name}:out:`))
      .flatMap((name) => {
        try {
          const entry = JSON.parse(this.#storage.getItem(name) ?? '') as Entry;
          if (Date.now() - entry.at < KEPT_MS) return [entry];
        } catch {
          // The widget did not write this entry.
        }
        this.#storage.removeItem(name);
        return [];
      })
      .toSorted((one, other) => one.at - other.at);
  }

  #add(key: string, text: string): void {
    this.#order += 1;
    const common = { messageId: null, turnId: null, seq: null, actions: [] };
    this.items.push({ ...common, dom: key, order: this.#order, role: 'visitor', text, state: 'sending', key });
  }

  #sort(): void {
    const at = ({ seq }: Item): number => seq ?? Number.POSITIVE_INFINITY;
    this.items.sort((one, other) => (at(one) === at(other) ? one.order - other.order : at(one) - at(other)));
  }

  #forget(): void {
    this.items = this.items.filter(({ key, turnId }) => key !== undefined && turnId === null);
    this.#conversationId = null;
    this.#seq = 0;
    this.hasEarlier = false;
    this.status = 'open';
    this.#starting = null;
  }

  async #start(): Promise<string> {
    if (this.#token) return this.#token;
    this.#starting ??= this.#door.start(this.#user).then(
      ({ token }) => {
        // Another tab may have been faster.
        this.#token = (!this.#user && this.#storage.getItem(this.#name)) || token;
        try {
          if (!this.#user) this.#storage.setItem(this.#name, this.#token);
        } catch {
          // The storage is full: the conversation lasts as long as the page.
        }
        return this.#token;
      },
      (cause: unknown) => {
        this.#starting = null;
        throw cause;
      },
    );
    return this.#starting;
  }

  /** Forgets a token that no longer counts, or whose conversation is gone. */
  #drop(): void {
    this.#token = null;
    this.#starting = null;
    if (!this.#user) this.#storage.removeItem(this.#name);
  }

  /** Waits longer after each failure, and continues at once when the connection is back. */
  async #rest(cause: unknown): Promise<void> {
    const { status, afterMs } = cause instanceof Refused ? cause : { status: 0, afterMs: 0 };
    this.online = status !== 0 && navigator.onLine;
    this.#changed([]);
    this.#tries += 1;
    const ms = Math.max(afterMs, Math.min(AGAIN_MOST_MS, AGAIN_FIRST_MS * 2 ** (this.#tries - 1)));
    if (this.#wake.signal.aborted) this.#wake = new AbortController();
    await sleep(ms * (0.75 + Math.random() / 2), this.#wake.signal);
  }

  #ok(): void {
    this.#tries = 0;
    this.online = true;
  }

  async #sendAll(): Promise<void> {
    if (this.#sending) return;
    this.#sending = true;
    for (;;) {
      const item = this.items.find(({ key, state, turnId }) => key && state === 'sending' && turnId === null);
      if (!item || this.#ended.signal.aborted) break;
      try {
        await this.#send(item);
      } catch (cause) {
        const status = cause instanceof Refused ? cause.status : 0;
        if (status === 401 && this.#user && !this.#token) {
          this.needsReload = true;
          item.state = 'failed';
        } else if (status === 401) this.#drop();
        else if (status >= 400 && status < 500 && status !== 429 && status !== 408) item.state = 'failed';
        else await this.#rest(cause);
      }
      this.#changed([]);
    }
    this.#sending = false;
  }

  /**
   * Resolves when the message is accepted, so that the next message can follow. Its reply is read in the background.
   */
  async #send(item: Item): Promise<void> {
    const token = await this.#start();
    const events = this.#door.send(token, { key: item.key as string, text: item.text });
    const first = await events.next();
    if (first.done || first.value.event !== 'accepted') throw new Refused(0);
    this.#ok();
    item.turnId = first.value.data.turnId;
    this.#storage.removeItem(`${this.#name}:out:${item.key}`);
    // The history may have the message already, if this was not the first try.
    const known = this.items.find((one) => one !== item && one.turnId === item.turnId && one.role === 'visitor');
    if (known) this.items = this.items.filter((one) => one !== item);
    this.#changed([]);
    void this.#follow();
    void this.#hear(known ?? item, events);
  }

  async #hear(item: Item, events: ReturnType<Door['send']>): Promise<void> {
    let attempt = 0;
    let writing: Item | null = null;
    const drop = (): void => {
      this.items = this.items.filter((one) => one !== writing || one.state === 'done');
    };
    try {
      for await (const { event, data } of events) {
        if (event === 'delta') {
          // The reply may have come with the history already.
          if (
            this.items.some(
              ({ turnId, role, state }) => turnId === item.turnId && role !== 'visitor' && state === 'done',
            )
          )
            continue;
          if (!writing) {
            const common = { messageId: null, seq: null, actions: [], text: '', order: item.order + 0.5 };
            writing = { ...common, dom: `r${item.dom}`, turnId: item.turnId, role: 'assistant', state: 'writing' };
            this.items.push(writing);
          }
          writing.text = data.attempt === attempt ? writing.text + data.text : data.text;
          attempt = data.attempt;
          this.#sort();
          this.#changed([]);
        } else if (event === 'message') {
          const { messageId, reply: content, suggestedActions = [], mergedInto } = data;
          const dom = writing?.dom;
          drop();
          item.state = 'done';
          if (mergedInto !== undefined) {
            this.#changed([]); // the stream of the later message has this reply too
            continue;
          }
          const given = {
            messageId,
            turnId: item.turnId,
            seq: null,
            role: 'assistant' as const,
            content,
            suggestedActions,
          };
          const news = this.#take([given], { dom, order: item.order + 0.5 });
          this.#changed(news);
        } else if (event === 'error') {
          drop();
          item.turnId = null;
          item.state = 'failed';
          this.#changed([]);
        }
      }
    } catch {
      drop(); // The reply comes with the next read.
      this.#wake.abort();
    }
  }

  /** Adds messages, or updates those that are there. Returns what others have said. */
  #take(messages: WireMessage[], given: { dom?: string | undefined; order?: number } = {}): Item[] {
    const news: Item[] = [];
    for (const { messageId, turnId, seq, role, content, suggestedActions = [] } of messages) {
      const known = this.items.find(
        (one) =>
          one.messageId === messageId ||
          (turnId !== null && one.turnId === turnId && (role === 'visitor') === (one.role === 'visitor')),
      );
      const state = role === 'visitor' && seq === null && !known?.key ? 'sending' : 'done';
      if (known) {
        const keepsWaiting = known.key !== undefined && known.state === 'sending' && seq === null;
        const shown = { messageId, seq: seq ?? known.seq, role, text: content, actions: suggestedActions };
        if (known.state === 'writing') news.push(known);
        Object.assign(known, shown, { state: keepsWaiting ? 'sending' : state });
        continue;
      }
      this.#order += 1;
      const item: Item = {
        dom: given.dom ?? messageId,
        order: given.order ?? this.#order,
        messageId,
        turnId,
        seq,
        role,
        text: content,
        actions: suggestedActions,
        state,
      };
      this.items.push(item);
      if (role !== 'visitor') news.push(item);
    }
    this.#sort();
    return news;
  }

  #takePage(page: Page, isFirst: boolean): Item[] {
    if (page.conversationId !== this.#conversationId) {
      // After an erasure the token is dropped too, so that nothing new is said with it.
      if (this.#conversationId !== null) {
        this.#forget();
        if (!this.#user) this.#drop();
        if (page.conversationId === null || !this.#user) return [];
      }
      this.#conversationId = page.conversationId;
    }
    const news = this.#take(page.messages);
    Object.assign(this, { status: page.status, opensAt: page.opensAt });
    if (isFirst) this.hasEarlier = page.hasEarlier;
    this.#seq = page.seq;
    return isFirst ? [] : news;
  }

  /** Follows the conversation while the page is visible. */
  async #follow(): Promise<void> {
    if (this.#following) return;
    this.#following = true;
    const { signal } = this.#ended;
    while (this.#token && !signal.aborted) {
      if (this.#wake.signal.aborted) this.#wake = new AbortController();
      if (document.hidden || !navigator.onLine) {
        await sleep(AGAIN_MOST_MS, this.#wake.signal);
        continue;
      }
      const since = Date.now();
      const isFirst = this.#conversationId === null;
      const isWaiting = !isFirst || (this.isRead && this.items.some(({ turnId }) => turnId !== null));
      const query: Record<string, string | number> = isWaiting
        ? { after: this.#seq, status: this.status, wait: isFirst ? 0 : WAIT_S }
        : {};
      try {
        const page = await this.#door.read(this.#token, query, AbortSignal.any([signal, this.#wake.signal]));
        this.#ok();
        const before = `${this.#seq} ${this.status}`;
        const news = this.#takePage(page, isFirst);
        this.isRead = true;
        this.#changed(news);
        if (page.conversationId === null && !this.items.some(({ turnId }) => turnId !== null)) break;
        // The service did not wait, because too many others do.
        const isIdle = !isFirst && before === `${this.#seq} ${this.status}`;
        if (isIdle && Date.now() - since < REST_MS) await sleep(REST_MS, this.#wake.signal);
      } catch (cause) {
        if (signal.aborted) break;
        if (this.#wake.signal.aborted) continue;
        if (cause instanceof Refused && cause.status === 401) this.#drop();
        else await this.#rest(cause);
      }
    }
    this.#following = false;
    this.isRead = true;
    this.#changed([]);
  }
}
