import { eventually } from './eventually.ts';
import type { OperatorClient } from './operator-client.ts';

type LiveEvent = { event: string; data: Record<string, unknown> };
export type LiveStream = {
  status: number;
  headers: Headers;
  events: LiveEvent[];
  /** The position at which this browser would resume. */
  position: () => string | null;
  /** Resolves when the server has ended the stream, or the connection broke. */
  ended: Promise<void>;
  hasEnded: () => boolean;
  leave: () => void;
  /** The last event of each conversation. */
  rows: () => Map<string, Record<string, unknown>>;
};

/** Follows the inbox as the dashboard does. */
export const followInbox = async (
  url: string,
  client: Pick<OperatorClient, 'cookie'>,
  { from = null, headers = {} }: { from?: string | null; headers?: Record<string, string> } = {},
): Promise<LiveStream> => {
  const browser = new AbortController();
  const response = await fetch(`${url}/operator/v1/live`, {
    headers: { Cookie: client.cookie() ?? '', ...(from !== null && { 'Last-Event-ID': from }), ...headers },
    signal: browser.signal,
  });
  const events: LiveEvent[] = [];
  let position: string | null = null;

  const readBlock = (block: string): void => {
    const fields = new Map(
      block.split('\n').flatMap((line): [string, string][] => {
        const at = line.indexOf(': ');
        return at > 0 ? [[line.slice(0, at), line.slice(at + 2)]] : [];
      }),
    );
    position = fields.get('id') ?? position;
    const [event, data] = [fields.get('event'), fields.get('data')];
    if (event !== undefined) events.push({ event, data: JSON.parse(data ?? '') as Record<string, unknown> });
  };
  const read = async (): Promise<void> => {
    let text = '';
    const decoder = new TextDecoder();
    for await (const chunk of response.body ?? []) {
      text += decoder.decode(chunk as Uint8Array, { stream: true });
      const blocks = text.split('\n\n');
      text = blocks.pop() ?? '';
      blocks.forEach(readBlock);
    }
  };
  let hasEnded = false;
  const ended = read()
    .catch(() => undefined)
    .finally(() => {
      hasEnded = true;
    });
  if (response.status === 200)
    await eventually(() => {
      if (position === null) throw new Error('the stream has no position yet');
    });
  return {
    status: response.status,
    headers: response.headers,
    events,
    position: () => position,
    ended,
    hasEnded: () => hasEnded,
    leave: () => browser.abort(),
    rows: () =>
      new Map(
        events
          .filter(({ event }) => event === 'conversation')
          .map(({ data }) => [String(data['conversationId']), data]),
      ),
  };
};
