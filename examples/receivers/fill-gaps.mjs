// Sees by X-Factory-Sequence that events are missing, and takes them from the feed: node fill-gaps.mjs
import { createServer } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { verify } from '../verify-signature/verify.mjs';

const { PARLEY_URL, PARLEY_KEY, ENDPOINT_ID, WEBHOOK_SECRET, PORT = '8080' } = process.env;
const [known, last] = [new Set(), new Map()]; // keep these and the cursor in your database
let [cursor, work] = ['', Promise.resolve()];

const take = (sequence, { event_id, payload: { conversation_id: id } }) => {
  if (known.has(event_id)) return;
  known.add(event_id);
  last.set(id, Math.max(sequence, last.get(id) ?? 0));
  console.log(id, sequence, event_id);
};

/** Reads the feed up to the event before this one, and waits for it: the feed is some seconds behind. */
const fill = async (id, sequence) => {
  for (let found = 0; found < sequence - 1; ) {
    const query = new URLSearchParams({ endpoint: ENDPOINT_ID, wait: '20', ...(cursor && { after: cursor }) });
    const headers = { Authorization: `Bearer ${PARLEY_KEY}` };
    const page = await (await fetch(`${PARLEY_URL}/api/v1/events?${query}`, { headers })).json();
    for (const one of page.events) {
      if (one.sequence && one.envelope) take(one.sequence, one.envelope); // test events have no sequence
      if (one.conversationId === id) found = Math.max(found, one.sequence);
    }
    cursor = page.cursor ?? '';
  }
};

const receive = async (request, response) => {
  const body = await buffer(request);
  if (!verify(body, request.headers['x-factory-signature'], [WEBHOOK_SECRET])) return response.writeHead(401).end();
  response.writeHead(204).end(); // within five seconds; the work comes after it, one event after the other
  const [event, sequence] = [JSON.parse(body), Number(request.headers['x-factory-sequence'] ?? 0)];
  const id = event.payload.conversation_id;
  const handle = () => sequence && take(sequence, event);
  const isGap = () => sequence > (last.get(id) ?? 0) + 1;
  work = work.then(async () => isGap() && (await fill(id, sequence))).then(handle).catch(console.error);
};

createServer((request, response) => void receive(request, response)).listen(Number(PORT));
