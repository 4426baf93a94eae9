import { createServer, type IncomingMessage } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { verifyWebhook } from '../../packages/client/src/verify-webhook.ts';

// The webhook server of the demo's imaginary customer. It receives events, verifies their signatures, prints a line for
// each event and lists the latest events at GET /received. The receiver and the service share only the endpoint's
// secret.

type Received = { receivedAt: string; verified: boolean; reason: string | null; again: boolean; event: unknown };

const RECEIVED_MAX = 200;
const SEEN_MAX = 10_000;
const port = Number(process.env['PORT']);
const secret = process.env['WEBHOOK_SECRET'] ?? '';
const received: Received[] = [];
const seen = new Set<string>();

const remember = (one: Received): Received => {
  received.push(one);
  if (received.length > RECEIVED_MAX) received.shift();
  return one;
};

const receive = async (request: IncomingMessage): Promise<Received> => {
  const body = await buffer(request);
  const header = request.headers['x-factory-signature'];
  const verdict = verifyWebhook(body, header, secret);
  const eventId = String(request.headers['x-factory-event-id']);
  const one: Received = {
    receivedAt: new Date().toISOString(),
    verified: verdict.ok,
    reason: verdict.ok ? null : verdict.reason,
    again: verdict.ok && seen.has(eventId),
    event: verdict.ok ? JSON.parse(body.toString()) : null, // unverified bodies are not parsed
  };
  if (verdict.ok) seen.add(eventId);
  for (const oldest of seen) {
    if (seen.size <= SEEN_MAX) break;
    seen.delete(oldest);
  }
  const kind = String(request.headers['x-factory-event']).padEnd(22);
  const outcome = verdict.ok ? 'signature verified' : `signature REFUSED (${verdict.reason})`;
  console.log(`event       ${kind} ${outcome}  ${eventId}${one.again ? '  (again)' : ''}`);
  return remember(one);
};

const server = createServer((request, response) => {
  const answer = (status: number, body?: unknown): void => {
    response.writeHead(status, { 'Content-Type': 'application/json' }).end(body && JSON.stringify(body));
  };
  if (request.method === 'GET') return answer(request.url === '/received' ? 200 : 404, received);
  if (request.method !== 'POST') return answer(405);
  receive(request).then(
    ({ verified }) => answer(verified ? 204 : 401),
    () => answer(400),
  );
});

server.listen(port, '127.0.0.1');
// Closed explicitly, because open keep-alive connections would delay the end of the process.
process.on('SIGTERM', () => server.close(() => process.exit(0)).closeAllConnections());
