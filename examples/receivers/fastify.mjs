// Receives Parley's events with Fastify: npm install fastify, and @parley/client
import Fastify from 'fastify';
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

const app = Fastify();

// The signature is of the bytes, so no JSON parser may come first.
app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));

app.post('/parley', (request, reply) => {
  const rawBody = request.body ?? '';
  const verdict = verifyWebhook(rawBody, request.headers['x-factory-signature'], process.env.WEBHOOK_SECRET);
  if (!verdict.ok) return reply.code(401).send(verdict.reason);
  reply.code(204).send(); // within five seconds; the work comes after it
  handle(parseEvent(rawBody)).catch(console.error);
});

await app.listen({ port: Number(process.env.PORT ?? 8080) });
