import { createServer } from 'node:http';
import { Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { storeReply } from './store.ts';

/** The baseline worker answers a job immediately and publishes the reply. Only the bench uses it. */
const url = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379';
const redis = new Redis(url, { enableAutoPipelining: true, maxRetriesPerRequest: null });
const connection = new Redis(url, { maxRetriesPerRequest: null });
type Turn = { id: string; message: string; replyTo: string };
const worker = new Worker<Turn>(
  'bare',
  async ({ data: { id, message, replyTo } }) => {
    const reply = `echo: ${message}`;
    await storeReply(id, { message, reply });
    await redis.publish(replyTo, JSON.stringify({ id, reply }));
  },
  { connection, prefix: `{${process.env.REDIS_PREFIX ?? 'bare'}}`, concurrency: 200 },
);
worker.on('error', (cause) => console.error(cause.message));
createServer((_req, res) => res.end('{}')).listen(Number(process.env.WORKER_HEALTH_PORT), '127.0.0.1');
process.on('SIGTERM', () => process.exit(0));
