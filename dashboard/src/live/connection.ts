import { createParser } from 'eventsource-parser';

const PATH = '/operator/v1/live';
/** The server sends something every 15 seconds. After this silence the connection is given up. */
const SILENT_MS = 35_000;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 10_000;

type Handlers = {
  /** `resumed` is false if changes before this moment may be missing. */
  onOpen: (opened: { resumed: boolean; at: Date }) => void;
  onEvent: (event: string, data: unknown) => void;
  onLost: () => void;
  onSignedOut: () => void;
};

/** Resolves after a time, or as soon as the browser is online again. */
const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      removeEventListener('online', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    addEventListener('online', end, { once: true });
    signal.addEventListener('abort', end, { once: true });
  });

/**
 * Follows the inbox until `signal` aborts. `fetch` is used instead of `EventSource`, which hides the status of a refusal
 * and cannot resume after the page itself has ended a silent connection.
 */
export const follow = async (handlers: Handlers, signal: AbortSignal): Promise<void> => {
  let position: string | null = null;
  let failures = 0;

  const read = async (body: ReadableStream<Uint8Array>, onBytes: () => void): Promise<void> => {
    const parser = createParser({
      onId: (id) => {
        position = id;
      },
      onEvent: ({ event = 'message', data }) => handlers.onEvent(event, JSON.parse(data)),
    });
    const reader = body.getReader();
    const decoder = new TextDecoder();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onBytes();
      parser.feed(decoder.decode(value, { stream: true }));
    }
  };

  const connect = async (): Promise<'signed out' | 'ended'> => {
    const attempt = new AbortController();
    const cut = (): void => attempt.abort();
    let timer = setTimeout(cut, SILENT_MS);
    const onBytes = (): void => {
      clearTimeout(timer);
      timer = setTimeout(cut, SILENT_MS);
    };
    addEventListener('offline', cut);
    signal.addEventListener('abort', cut);
    try {
      const headers = {
        Accept: 'text/event-stream',
        'X-Parley-Unattended': '1',
        ...(position !== null && { 'Last-Event-ID': position }),
      };
      const response = await fetch(PATH, { headers, cache: 'no-store', signal: attempt.signal });
      if (response.status === 401) return 'signed out';
      if (!response.ok || !response.body) throw new Error(`status ${response.status}`);
      failures = 0;
      handlers.onOpen({ resumed: position !== null, at: new Date(response.headers.get('Date') ?? Date.now()) });
      await read(response.body, onBytes);
      return 'ended';
    } finally {
      clearTimeout(timer);
      removeEventListener('offline', cut);
      signal.removeEventListener('abort', cut);
    }
  };

  while (!signal.aborted) {
    const how = await connect().catch(() => 'failed' as const);
    if (signal.aborted) return;
    if (how === 'signed out') return handlers.onSignedOut();
    handlers.onLost();
    failures += 1;
    const longest = Math.min(FIRST_PAUSE_MS * 2 ** failures, LONGEST_PAUSE_MS);
    await pause(longest * (0.5 + Math.random() / 2), signal);
  }
};
