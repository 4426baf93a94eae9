import type { ServerResponse } from 'node:http';
import { openReceiver } from '../../test/kit/receiver.ts';
import type { Random } from '../../test/kit/random.ts';
import type { Seen } from './history.ts';

const GOOD_LATENCY_MS = 30;
const LATE_MS = 900;
/** Within the deadline of a delivery. */
const SLOW_MS = 2_500;

/** `slow` takes seconds for one request in ten. */
export type ReceiverKind = 'good' | 'slow' | 'hostile';

type EventBody = {
  event: string;
  event_id: string;
  payload: { conversation_id: string; content?: string; message_id?: string };
};

type Manner = (response: ServerResponse, random: Random) => void;

const ok: Manner = (response, random) =>
  void setTimeout(() => response.writeHead(200).end('ok'), random.next() * GOOD_LATENCY_MS);

const slow: Manner = (response, random) => {
  if (random.next() >= 0.1) return ok(response, random);
  setTimeout(() => response.writeHead(200).end('ok'), random.next() * SLOW_MS);
};

/** Fails, resets, redirects, drips or answers late. Sometimes it never answers. */
const hostile: Manner = (response, random) => {
  const manners: (() => void)[] = [
    () => response.writeHead(500).end('no'),
    () => response.socket?.resetAndDestroy(),
    () => response.writeHead(302, { Location: 'http://127.0.0.1:1/' }).end(),
    () => void setTimeout(() => response.writeHead(200).end('late'), LATE_MS),
    () => void response.writeHead(200, { 'Content-Length': '99' }).write('part'),
    () => undefined,
  ];
  const [usual, stuck] = [manners.slice(0, 4), manners.slice(4)];
  const some = random.next() < 0.05 ? stuck : usual;
  some[random.below(some.length)]?.();
};

const MANNERS: Record<ReceiverKind, Manner> = { good: ok, slow, hostile };

/** A customer's server that records every event in order of arrival. */
export const openCustomer = async (kind: ReceiverKind, random: Random) => {
  const seen: Seen[] = [];
  let forged = 0;
  const receiver = await openReceiver({
    secret: '',
    respond: ({ json, verdict }) => {
      if (!verdict?.ok) forged += 1;
      const { event, event_id: eventId, payload } = json as EventBody;
      const { conversation_id: conversationId, content = null, message_id: messageId = null } = payload;
      seen.push({ eventId, event, conversationId, content, messageId });
      return (response) => MANNERS[kind](response, random);
    },
  });
  return { ...receiver, seen, forged: (): number => forged };
};
export type Customer = Awaited<ReturnType<typeof openCustomer>>;
