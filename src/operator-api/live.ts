import * as z from 'zod';
import { once } from 'node:events';
import type { Response } from 'express';
import type { ConversationStore } from '../conversations/store.ts';
import { type RateLimiter, rateLimitHeaders } from '../assistants/rate-limit.ts';
import type { LiveUpdates } from '../live/live.ts';
import { PRESENT_STATES } from '../live/presence.ts';
import type { EventSink } from '../live/subscriber.ts';
import { notFound, unavailable } from '../process/errors.ts';
import { EVENT_STREAM_HEADERS } from '../http/http.ts';
import { type Handled, handled, operation } from './operation.ts';

const tag = 'Operators';

const EXAMPLE = [
  'event: conversation\ndata: {"conversationId":"6f1d2c3b-8a49-4e5f-9b7a-1c2d3e4f5a6b","status":"escalated", …}',
  'event: presence\ndata: {"conversationId":"6f1d2c3b-8a49-4e5f-9b7a-1c2d3e4f5a6b","operatorId":"…","email":"a@example.com","state":"writing"}',
  'event: erased\ndata: {"conversationId":"6f1d2c3b-8a49-4e5f-9b7a-1c2d3e4f5a6b"}\nid: 826…',
].join('\n\n');

export const liveOperations = {
  live: operation({
    method: 'get',
    path: '/live',
    lasts: true,
    id: 'followInbox',
    tag,
    summary: 'Follow the inbox as server-sent events',
    description:
      'Sends the row of every conversation that changes, within a second. With the header `Last-Event-ID`, it first sends what changed since then; after the event `reset`, load everything again.',
    audience: 'operators',
    resource: 'filtered',
    peopleOnly: true,
    headers: z.object({
      'Last-Event-ID': z.string().optional().meta({ description: 'The last `id` that the browser got.' }),
    }),
    contentType: 'text/event-stream',
    answer: z.string().meta({ description: 'Events `conversation`, `erased`, `presence` and `reset`.' }),
    answerExample: EXAMPLE,
    errors: ['rate_limited'],
  }),
  presence: operation({
    method: 'post',
    path: '/conversations/:id/presence',
    id: 'announcePresence',
    tag,
    summary: 'Tell other operators that you read this conversation or write in it; expires after 15 s',
    audience: 'operators',
    resource: 'conversation',
    peopleOnly: true,
    body: z.object({ state: z.enum([...PRESENT_STATES, 'gone']) }),
    limited: true,
    errors: ['not_found', 'rate_limited'],
    // No audit line: nothing is stored for longer than 15 seconds.
  }),
};

/** A response that may have ended already, because the browser left or MongoDB was silent. */
const sinkOf = (res: Response): EventSink => {
  const left = new AbortController();
  if (res.destroyed) left.abort();
  res.once('close', () => left.abort());
  return {
    write: (text) => {
      if (res.writableEnded || res.destroyed) return;
      if (!res.headersSent) res.set(EVENT_STREAM_HEADERS); // not before, so that a refusal is JSON
      res.write(text);
    },
    end: () => res.end(),
    destroy: () => res.destroy(),
    get writableLength() {
      return res.writableLength;
    },
    drained: async () => {
      if (!res.writableNeedDrain || left.signal.aborted) return;
      await once(res, 'drain', { signal: left.signal }).catch(() => undefined);
    },
    left: left.signal,
  };
};

type Dependencies = {
  live: LiveUpdates;
  conversations: Pick<ConversationStore, 'findOwner'>;
  rateLimiter: Pick<RateLimiter, 'forPresence'>;
};

export const liveRoutes = ({ live, conversations, rateLimiter }: Dependencies): Handled[] => [
  handled(liveOperations.live, async ({ operator, req, res }) => {
    if (req.method === 'HEAD') {
      res.set(EVENT_STREAM_HEADERS).end();
      return '';
    }
    const session = { sessionId: req.sessionID, operatorId: operator.operatorId };
    const from = req.get('Last-Event-ID') ?? null;
    const disconnect = await live.connect(sinkOf(res), { operator, session, from });
    res.on('close', disconnect);
    if (res.writableEnded || res.destroyed) disconnect();
    return '';
  }),

  handled(liveOperations.presence, async ({ params: { id = '' }, body: { state }, operator, res }) => {
    // Each one is kept for 15 s and sent to every browser.
    res.set(rateLimitHeaders(await rateLimiter.forPresence(operator.operatorId)));
    const owner = await conversations.findOwner(id);
    if (!owner) throw notFound();
    const { operatorId, email } = operator;
    const presence = { conversationId: id, assistantId: owner.assistantId, operatorId, email, state };
    await live.announce(presence).catch((cause: unknown) => {
      throw unavailable(cause);
    });
  }),
];
