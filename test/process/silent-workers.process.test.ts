import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, inject, test } from 'vitest';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { openDeliveryWorker } from '../../workers/delivery/worker.ts';
import { openReplyWorker } from '../../workers/reply/worker.ts';
import { anAssistant, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { openReceiver } from '../kit/receiver.ts';
import { openRelay, through } from '../kit/relay.ts';
import { sized } from '../support/size.ts';
import { openStack } from '../support/stack.ts';

/** Leases and claims that end soon, so that a short silence outlasts them. In the long suite they last as in production. */
const SHORT = {
  turnLeaseRenewMs: 1_000,
  turnLeaseMs: 3_500,
  jobLockMs: 3_500,
  jobStalledEveryMs: 2_000,
  deliveryDeadlineMs: 1_500,
  readFreshMs: 1_000,
  writeBeforeMs: 2_500,
  endWrittenWithinMs: 3_000,
  claimLostMs: 4_000,
};
/** `silentForMs` is longer than any timeout here, including a lease and BullMQ's blocking read. */
const { timing, silentForMs, sessions, turns } = sized({
  everyday: { timing: SHORT, silentForMs: 7_000, sessions: 4, turns: 6 },
  long: { timing: {}, silentForMs: 14_000, sessions: 8, turns: 12 },
});

/** A worker that has not closed by then never does. */
const CLOSED_WITHIN_MS = 60_000;

test.concurrent.for(['Redis', 'MongoDB'] as const)(
  'workers continue after %s was silent under load: every turn is answered once, no event is sent twice',
  async (store, { onTestFinished }) => {
    const stack = await openStack({ replyWorkers: 0, deliveryWorkers: 0, timing });
    onTestFinished(stack.close);
    const [redis, mongodb] = [await openRelay(inject('redisUrl')), await openRelay(inject('mongodbUrl'))];
    const config = readConfig(
      {
        ...stack.env,
        REDIS_URL: through(stack.env['REDIS_URL'] ?? '', redis),
        MONGODB_URL: through(stack.env['MONGODB_URL'] ?? '', mongodb),
      },
      timing,
    );
    const logger = createLogger({ name: 'test', level: 'fatal' });
    const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
    onTestFinished(async () => {
      await lifecycle.close();
      await Promise.all([redis.cut(), mongodb.cut()]);
    }, CLOSED_WITHIN_MS);
    const { apiKey, assistantId, history } = await anAssistant(stack);
    const receiver = await openReceiver();
    onTestFinished(receiver.close);
    await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
    await openReplyWorker({ config, logger, lifecycle, engine: aScriptedEngine().engine });
    await openDeliveryWorker({ config, logger, lifecycle });
    const relay = { Redis: redis, MongoDB: mongodb }[store];
    const silence = Promise.withResolvers<void>();
    const fallSilent = (): void => {
      relay.freeze();
      silence.resolve();
    };
    let answered = 0;
    let stop = false;
    const talk = async () => {
      const session_id = randomUUID();
      let conversationId = '';
      for (let nth = 0; nth < turns; nth += 1) {
        const body = { session_id, message: `${session_id}#${nth}` };
        for (;;) {
          const answer = await request(`${stack.url}/api/v1/chat`, { body, bearer: apiKey });
          if (answer.status === 200) {
            conversationId = answer.body.conversationId;
            break;
          }
          if (stop) throw new Error(`${answer.status}`);
        }
        answered += 1;
        if (answered === sessions * 2) fallSilent();
      }
      return { session_id, conversationId };
    };
    const load = Array.from({ length: sessions }, talk);

    await silence.promise;
    await sleep(silentForMs); // the silence itself
    const whileSilent = answered;
    relay.thaw();
    await eventually(() => expect(answered).toBeGreaterThan(whileSilent));
    const all = await Promise.all(load).finally(() => (stop = true));

    for (const { session_id, conversationId } of all) {
      const { messages } = (await history(conversationId)).body;
      const said = messages.filter(({ role }) => role === 'user').map(({ content }) => content);
      expect(said).toEqual(Array.from({ length: turns }, (_, nth) => `${session_id}#${nth}`));
      expect(messages.filter(({ role }) => role === 'assistant')).toHaveLength(turns);
    }
    const events = sessions * (turns + 1);
    await eventually(async () => {
      const rows = await stack.service.mongo.collection('deliveries').find({ assistantId }).toArray();
      expect(rows.filter(({ outcome }) => outcome === 'delivered' || outcome === 'unknown')).toHaveLength(events);
    });
    const ids = receiver.received.map(({ headers }) => headers['x-factory-event-id']);
    expect(new Set(ids).size).toBe(ids.length);
  },
);
