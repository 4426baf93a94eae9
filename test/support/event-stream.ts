import { eventually } from './eventually.ts';
import { validateResponse } from './validate-response.ts';

export type StreamEvent = { event: string; data: Record<string, unknown> };
export type OpenStream = {
  status: number;
  headers: Headers;
  /** All events so far. A comment of the stream is `{event: ':'}`. */
  events: StreamEvent[];
  /** Resolves when the server has ended the stream. */
  ended: Promise<StreamEvent[]>;
  leave: () => void;
};

const readEvent = (block: string): StreamEvent => {
  if (block.startsWith(':')) return { event: ':', data: {} };
  const [event, data, ...rest] = block.split('\n');
  if (!event?.startsWith('event: ') || !data?.startsWith('data: ') || rest.length > 0) throw new Error(`odd: ${block}`);
  return { event: event.slice(7), data: JSON.parse(data.slice(6)) as Record<string, unknown> };
};

/** Sends a turn with a streamed reply and records each event as it arrives. */
export const openStream = async (
  url: string,
  options: { body: unknown; bearer?: string; headers?: Record<string, string> },
): Promise<OpenStream> => {
  const caller = new AbortController();
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      Accept: 'text/event-stream',
      'Content-Type': 'application/json',
      ...(options.bearer && { Authorization: `Bearer ${options.bearer}` }),
      ...options.headers,
    },
    body: JSON.stringify(options.body),
    signal: caller.signal,
  });
  const { status, headers } = response;
  const events: StreamEvent[] = [];

  const read = async (): Promise<StreamEvent[]> => {
    let text = '';
    let done = 0;
    const decoder = new TextDecoder();
    for await (const chunk of response.body ?? []) {
      text += decoder.decode(chunk as Uint8Array, { stream: true });
      for (let end = text.indexOf('\n\n', done); end !== -1; end = text.indexOf('\n\n', done)) {
        events.push(readEvent(text.slice(done, end)));
        done = end + 2;
      }
    }
    validateResponse({ method: 'POST', url, status, headers, body: text });
    return events;
  };
  const ended = read();
  ended.catch(() => undefined); // a caller who leaves does not handle the error
  if (headers.get('content-type')?.startsWith('text/event-stream')) {
    await eventually(() => {
      if (events.length === 0) throw new Error('nothing came');
    });
  }
  return { status, headers, events, ended, leave: () => caller.abort() };
};

export const deltasOf = (events: StreamEvent[]): { text: string; attempt: number }[] =>
  events.filter(({ event }) => event === 'delta').map(({ data }) => data as { text: string; attempt: number });

/** The text of the last attempt's deltas. */
export const spokenOf = (events: StreamEvent[]): string => {
  const deltas = deltasOf(events);
  const last = deltas.at(-1)?.attempt;
  return deltas
    .filter(({ attempt }) => attempt === last)
    .map(({ text }) => text)
    .join('');
};
