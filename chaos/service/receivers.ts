import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { verifyWebhook } from '../../packages/client/src/verify-webhook.ts';
import type { Random } from '../../test/kit/random.ts';
import type { Seen } from './history.ts';

const GOOD_LATENCY_MS = 30;
const LATE_MS = 900;
/** Within the deadline of a delivery. */
const SLOW_MS = 2_500;

/** `slow` takes seconds for one request in ten. */
export type ReceiverKind = 'good' | 'slow' | 'hostile';

export type Receiver = {
  url: string;
  seen: Seen[];
  /** Requests without a valid signature. */
  forged: () => number;
  setSecret: (secret: string) => void;
  close: () => Promise<void>;
};

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
export const openReceiver = async (kind: ReceiverKind, random: Random): Promise<Receiver> => {
  const seen: Seen[] = [];
  let forged = 0;
  let secret = '';
  const server = createServer((request, response) => {
    const record = (body: string): void => {
      if (!verifyWebhook(body, request.headers['x-factory-signature'], secret).ok) forged += 1;
      const { event, event_id: eventId, payload } = JSON.parse(body) as EventBody;
      seen.push({
        eventId,
        event,
        conversationId: payload.conversation_id,
        content: payload.content ?? null,
        messageId: payload.message_id ?? null,
      });
      MANNERS[kind](response, random);
    };
    // A request without its end comes from a sender that was killed.
    text(request).then(record, () => undefined);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    seen,
    forged: () => forged,
    setSecret: (given) => {
      secret = given;
    },
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
};
