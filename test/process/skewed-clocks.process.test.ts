import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { startRedis } from '../../scripts/services.ts';
import { anAssistant, type ChatBody, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { type Kind, type RealProcess, startRealProcess } from '../kit/processes.ts';
import { openReceiver } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';

const MINUTES_MS = 60_000;
const SKEW_MS = 11 * MINUTES_MS;

const redis = useOpened(startRedis, (opened) => opened.dispose());
const stack = useStack(() => ({ env: { REDIS_URL: redis.url }, replyWorkers: 0, deliveryWorkers: 0 }));

const start = (kind: Kind, skewMs: number): Promise<RealProcess> => startRealProcess(kind, stack.env, { skewMs });

const ahead = { name: 'the API is 11 minutes ahead, the workers 11 behind', api: SKEW_MS, workers: -SKEW_MS };
const behind = { name: 'the API is 11 minutes behind, the workers 11 ahead', api: -SKEW_MS, workers: SKEW_MS };

test.each(sized({ everyday: [ahead], long: [ahead, behind] }))(
  '$name: turns are answered, events are delivered, retries are recognised',
  async ({ api, workers }) => {
    const { assistantId, apiKey } = await anAssistant(stack, { input: { dedupeWindowSeconds: 600 } });
    const { endpoint, secret } = await stack.service.endpoints.addEndpoint(assistantId, {
      url: 'http://127.0.0.1:9/unused',
    });
    const receiver = await openReceiver({ secret });
    await stack.service.endpoints.updateEndpoint(endpoint.endpointId, { url: receiver.url });
    const processes = await Promise.all([start('api', api), start('reply', workers), start('delivery', workers)]);
    try {
      const url = processes[0]?.url ?? '';
      const chat = (session_id: string, message: string) =>
        request<ChatBody>(`${url}/api/v1/chat`, { body: { session_id, message }, bearer: apiKey });
      const sessions = Array.from({ length: 10 }, () => randomUUID());

      const first = await Promise.all(sessions.map((session) => chat(session, 'What are your opening hours?')));
      const again = await Promise.all(sessions.map((session) => chat(session, 'What are your opening hours?')));

      expect([...first, ...again].map(({ status }) => status)).toEqual(Array(20).fill(200));
      expect(again.map(({ body }) => body.messageId)).toEqual(first.map(({ body }) => body.messageId));
      await receiver.waitFor((received) => received.length >= 20);
      // The receiver's clock is right and finds every signature fresh.
      expect(receiver.received.map(({ verdict }) => verdict?.ok)).toEqual(Array(20).fill(true));
      await eventually(async () => {
        const rows = await stack.service.mongo.collection('deliveries').find({ assistantId }).toArray();
        expect(rows.map(({ outcome }) => outcome as string)).toEqual(Array(20).fill('delivered'));
        for (const { createdAt } of rows) expect(Math.abs(Date.now() - +createdAt)).toBeLessThan(MINUTES_MS);
      });

      // A turn with a lost job is found by its age, which does not depend on a process's clock.
      await processes[1]?.kill();
      const lost = chat(randomUUID(), 'Where are you?');
      await eventually(async () => {
        const waiting = { assistantId, 'waiting.0': { $exists: true } };
        expect(await stack.service.mongo.collection('conversations').countDocuments(waiting)).toBe(1);
      });
      await stack.service.redis.flushall();
      processes.push(await start('reply', workers));
      expect((await lost).status).toBe(200);
    } finally {
      await Promise.all(processes.map((one) => one.kill()));
      await receiver.close();
    }
  },
);
