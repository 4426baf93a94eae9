import { setTimeout as sleep } from 'node:timers/promises';
import { createParser } from 'eventsource-parser';
import type { Told, Way } from './history.ts';
import { PATIENCE_MS } from './limits.ts';

const POLL_EVERY_MS = 150;

export type Door = { url: string; apiKey: string; channelToken: string; assistantId: string };
export type Order = { way: Way; session: string; message: string; key: string };

/** The result of one attempt: the reply, a refusal that may be tried again, or a failure with an unknown outcome. */
export type Attempt = { told: Told } | { failed: string };

const headersOf = ({ way, key }: Order, { apiKey, channelToken }: Door): Record<string, string> => ({
  'Content-Type': 'application/json',
  Authorization: `Bearer ${way === 'channel' ? channelToken : apiKey}`,
  ...(way === 'stream' && { Accept: 'text/event-stream' }),
  ...(way === 'async' && { Prefer: 'respond-async' }),
  ...(way === 'key' && { 'Idempotency-Key': key }),
});

const toTold = ({ reply, conversationId, messageId }: Told): Told => ({ reply, conversationId, messageId });

/** Called with the id of a turn that the API says it has accepted. */
type Accepted = (turnId: string) => void;

/** Reads a stream to its end. Returns the last `message`, or the reason why there is none. */
const readStream = async (response: Response, accepted: Accepted): Promise<Attempt> => {
  let result: Attempt = { failed: 'the stream ended without a message' };
  const parser = createParser({
    onEvent: ({ event, data }) => {
      if (event === 'accepted') accepted((JSON.parse(data) as { turnId: string }).turnId);
      if (event === 'message') result = { told: toTold(JSON.parse(data) as Told) };
      if (event === 'error') result = { failed: `stream: ${data.slice(0, 80)}` };
    },
  });
  const decoder = new TextDecoder();
  for await (const chunk of response.body ?? []) parser.feed(decoder.decode(chunk, { stream: true }));
  return result;
};

type Turn = { status: 'accepted' | 'answered' | 'failed' } & Told;
const NOT_FOUND = 404;

/** Polls the turn until it has an answer. A failed poll is repeated, because it changes nothing. */
const poll = async (path: string, doors: () => Door, until: number): Promise<Attempt> => {
  while (performance.now() < until) {
    const { url, apiKey } = doors();
    const turn = await fetch(`${url}${path}`, { headers: { Authorization: `Bearer ${apiKey}` } }).then(
      async (response) => {
        const text = await response.text();
        if (response.status === NOT_FOUND) return { status: 'lost' as const };
        return response.ok ? (JSON.parse(text) as Turn) : null;
      },
      () => null,
    );
    if (turn?.status === 'lost') return { failed: '404 the accepted turn is not found' };
    if (turn?.status === 'answered') return { told: toTold(turn) };
    if (turn?.status === 'failed') return { failed: 'the turn failed' };
    await sleep(POLL_EVERY_MS);
  }
  return { failed: 'the turn was not answered in time' };
};

/** Why a request has no response. */
export const describeBreak = (cause: unknown): string => {
  const inner = cause instanceof Error && cause.cause instanceof Error ? `: ${cause.cause.message}` : '';
  return `${String(cause)}${inner}`;
};

/** Sends a message once. */
export const attempt = async (
  order: Order,
  doors: () => Door,
  accepted: Accepted = () => undefined,
): Promise<Attempt> => {
  const door = doors();
  const until = performance.now() + PATIENCE_MS;
  const path = order.way === 'channel' ? `/api/v1/channels/webhook/${door.assistantId}` : '/api/v1/chat';
  try {
    const response = await fetch(`${door.url}${path}`, {
      method: 'POST',
      headers: headersOf(order, door),
      body: JSON.stringify({ session_id: order.session, message: order.message }),
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    if (response.headers.get('content-type')?.startsWith('text/event-stream'))
      return await readStream(response, accepted);
    const text = await response.text();
    if (response.status === 202) {
      accepted((JSON.parse(text) as { turnId: string }).turnId);
      return await poll(response.headers.get('location') ?? '', doors, until);
    }
    if (response.status !== 200) return { failed: `${response.status} ${text.slice(0, 40)}` };
    return { told: toTold(JSON.parse(text) as Told) };
  } catch (cause) {
    const seconds = ((PATIENCE_MS - (until - performance.now())) / 1000).toFixed(1);
    return { failed: `${describeBreak(cause)} at ${door.url} after ${seconds} s` };
  }
};
