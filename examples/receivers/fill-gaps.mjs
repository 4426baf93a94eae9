// Sees by X-Factory-Sequence that events are missing, and takes them from the feed: npm install @parley/client
import { createServer } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { Parley, parseEvent, verifyWebhook } from '@parley/client';

const { PARLEY_URL: url, PARLEY_KEY: apiKey, ENDPOINT_ID: endpoint, WEBHOOK_SECRET, PORT = '8080' } = process.env;
const parley = new Parley({ url, apiKey });
const [known, last] = [new Set(), new Map()]; // keep these and `after` in your database
let [after, work] = [undefined, Promise.resolve()];

const take = ({ eventId, conversationId, sequence }) => {
  if (known.has(eventId) || sequence === null) return; // a test event has no sequence
  known.add(eventId);
  last.set(conversationId, Math.max(sequence, last.get(conversationId) ?? 0));
  console.log(conversationId, sequence, eventId); // your work, with the `envelope`; null if it was erased meanwhile
};

const receive = async (envelope, sequence) => {
  const one = { eventId: envelope.event_id, conversationId: envelope.payload.conversation_id, sequence, envelope };
  while (sequence > (last.get(one.conversationId) ?? 0) + 1) {
    const page = await parley.events({ endpoint, after, wait: 20 }); // the feed is some seconds behind
    page.events.forEach(take);
    after = page.cursor ?? undefined;
  }
  take(one);
};

const answer = async (request, response) => {
  const [body, sequence] = [await buffer(request), Number(request.headers['x-factory-sequence'])];
  const { ok } = verifyWebhook(body, request.headers['x-factory-signature'], WEBHOOK_SECRET);
  response.writeHead(ok ? 204 : 401).end(); // within five seconds; the work comes after it, one event after the other
  if (ok && sequence > 0) work = work.then(() => receive(parseEvent(body), sequence)).catch(console.error);
};

createServer((request, response) => void answer(request, response)).listen(Number(PORT));
