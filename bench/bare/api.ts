import express from 'express';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import * as z from 'zod';
import { randomUUID } from 'node:crypto';
import { storeTurn } from './store.ts';

/**
 * The baseline shows the cost of Express, zod, one BullMQ job per turn and a reply channel, without Parley. It has no
 * keys, limits, order or de-duplication, and without MONGODB_URL it stores nothing. Only the bench uses it.
 */
const url = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379';
const redis = new Redis(url, { enableAutoPipelining: true, maxRetriesPerRequest: null });
const subscriber = new Redis(url, { maxRetriesPerRequest: null });
const prefix = `{${process.env.REDIS_PREFIX ?? 'bare'}}`;
const queue = new Queue('bare', { connection: redis, prefix });
const channel = `bare:${randomUUID()}`;
const pending = new Map<string, (reply: string) => void>();
subscriber.on('message', (_channel, text) => {
  const { id, reply } = JSON.parse(text) as { id: string; reply: string };
  pending.get(id)?.(reply);
  pending.delete(id);
});
await subscriber.subscribe(channel);

const ChatRequest = z.object({
  session_id: z.string().min(1).max(256),
  message: z.string().min(1).max(8000),
  language: z.string().optional(),
});

const app = express();
app.disable('x-powered-by');
app.get('/readyz', (_req, res) => void res.json({ ready: true }));
app.post('/api/v1/chat', express.json({ limit: '64kb' }), async (req, res) => {
  const body = ChatRequest.parse(req.body);
  const id = randomUUID();
  const reply = new Promise<string>((resolve) => pending.set(id, resolve));
  await storeTurn(id, body);
  await queue.add('turn', { ...body, id, replyTo: channel }, { removeOnComplete: true });
  res.json({ reply: await reply, conversationId: id, messageId: id });
});
app.listen(Number(process.env.PORT), '127.0.0.1');
process.on('SIGTERM', () => process.exit(0));
