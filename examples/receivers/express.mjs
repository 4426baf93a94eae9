// Receives Parley's events with Express: npm install express, and @parley/client
import express from 'express';
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

const app = express();

// The signature is of the bytes, so no JSON parser may come first.
app.post('/parley', express.raw({ type: 'application/json', limit: '1mb' }), (request, response) => {
  const rawBody = request.body ?? '';
  const verdict = verifyWebhook(rawBody, request.get('X-Factory-Signature'), process.env.WEBHOOK_SECRET);
  if (!verdict.ok) return response.status(401).send(verdict.reason);
  response.sendStatus(204); // within five seconds; the work comes after it
  handle(parseEvent(rawBody)).catch(console.error);
});

app.listen(Number(process.env.PORT ?? 8080));
