// Receives Parley's events with Next.js: save it as app/parley/route.js, and install @parley/client
import { parseEvent, verifyWebhook } from '@parley/client';

/** An operator may send an event again: keep each `event_id` in a unique index, and skip the known ones. */
const handle = async (event) => {
  switch (event.event) {
    case 'conversation.created':
      return console.log(event.payload.session_id, 'is', event.payload.conversation_id);
    case 'message.sent':
      return console.log(event.payload.role, 'wrote', event.payload.content);
    default: // a kind that you do not need
  }
};

export const POST = async (request) => {
  const rawBody = new Uint8Array(await request.arrayBuffer());
  const verdict = verifyWebhook(rawBody, request.headers.get('X-Factory-Signature'), process.env.WEBHOOK_SECRET);
  if (!verdict.ok) return new Response(verdict.reason, { status: 401 });
  // The answer is due within five seconds, so put longer work into a queue.
  await handle(parseEvent(rawBody));
  return new Response(null, { status: 204 });
};
