/** What the service sends (docs/contract.md, Web channel). */
export type Action = { label: string; type: 'link' | 'reply' | 'escalate' | 'phone' | 'email'; payload: string };
export type Settings = {
  title: string;
  greeting: string;
  starters: string[];
  accent: string;
  theme: 'auto' | 'light' | 'dark';
  side: 'start' | 'end';
};
export type Status = 'open' | 'escalated' | 'resolved';
export type WireMessage = {
  messageId: string;
  turnId: string | null;
  seq: number | null;
  role: 'visitor' | 'assistant' | 'person';
  content: string;
  suggestedActions?: Action[];
};
export type Page = {
  conversationId: string | null;
  status: Status;
  opensAt: string | null;
  messages: WireMessage[];
  seq: number;
  hasMore: boolean;
  hasEarlier: boolean;
};
export type User = { id: string; expires: number; signature: string };
export type Reply = { reply: string; suggestedActions?: Action[]; messageId: string; mergedInto?: string };
export type TurnEvent =
  | { event: 'accepted'; data: { turnId: string } }
  | { event: 'delta'; data: { text: string; attempt: number } }
  | { event: 'message'; data: Reply }
  | { event: 'error'; data: { error: { code: string } } };

/** An answer that is not 2xx. Status 0: there was none. */
export class Refused extends Error {
  readonly status: number;
  readonly afterMs: number;

  constructor(status: number, afterMs = 0) {
    super(`refused with ${status}`);
    this.status = status;
    this.afterMs = afterMs;
  }
}

type Call = { token?: string | null; body?: unknown; key?: string; stream?: boolean; signal?: AbortSignal };

/** The web channel of one assistant. */
export class Door {
  readonly #base: string;

  constructor(origin: string, assistantId: string) {
    this.#base = `${origin}/api/v1/web/${assistantId}`;
  }

  async #fetch(path: string, { token, body, key, stream, signal }: Call): Promise<Response> {
    const response = await fetch(this.#base + path, {
      method: body === undefined ? 'GET' : 'POST',
      headers: {
        ...(token && { Authorization: `Bearer ${token}` }),
        ...(body !== undefined && { 'Content-Type': 'application/json' }),
        ...(key && { 'Idempotency-Key': key }),
        ...(stream && { Accept: 'text/event-stream' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(signal && { signal }),
      credentials: 'omit',
      referrerPolicy: 'no-referrer',
    }).catch((cause: unknown) => {
      if (signal?.aborted) throw cause;
      throw new Refused(0);
    });
    if (!response.ok) throw new Refused(response.status, Number(response.headers.get('Retry-After') ?? 0) * 1000);
    return response;
  }

  async #json<Answer>(path: string, call: Call = {}): Promise<Answer> {
    const response = await this.#fetch(path, call);
    return (await response.json().catch(() => {
      throw new Refused(0);
    })) as Answer;
  }

  settings = (): Promise<Settings> => this.#json('/settings');

  start = (user: User | null): Promise<{ token: string }> => this.#json('/sessions', { body: user ? { user } : {} });

  read = (token: string, query: Record<string, string | number>, signal?: AbortSignal): Promise<Page> =>
    this.#json(`/messages?${new URLSearchParams(query as Record<string, string>)}`, {
      token,
      ...(signal && { signal }),
    });

  escalate = (token: string, reason: string): Promise<unknown> =>
    this.#json('/escalate', { token, body: { reason: reason.slice(0, 500) } });

  /** Sends a message, and yields the events of its turn. */
  async *send(token: string, { key, text }: { key: string; text: string }): AsyncGenerator<TurnEvent> {
    const response = await this.#fetch('/messages', { token, key, stream: true, body: { message: text } });
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const read = await reader?.read().catch(() => undefined);
      if (!read) throw new Refused(0);
      if (read.done) return;
      const blocks = (rest + read.value).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) {
        const [, event, data] = /^event: (\w+)\ndata: (.*)$/.exec(block) ?? [];
        if (event && data) yield { event, data: JSON.parse(data) } as TurnEvent;
      }
    }
  }
}
