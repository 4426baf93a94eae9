import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { often, record, seed } from '../kit/fuzz-part.ts';
import { type Answer, anAssistant, type ChatBody, request, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openReceiver } from '../kit/receiver.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { useStack } from '../support/stack.ts';

/**
 * Compares the service with a model of the rules of docs/contract.md, Retry is safe. Random conversations of turns,
 * repetitions, operators' messages and held replies run over two API processes. The model knows only the rules, and the
 * service is called over HTTP.
 */

const RUNS = often({ short: 6, whole: 400 });
const { engine, hold } = aScriptedEngine();
const stack = useStack({ engine, apis: 2 });

type Turn = { text: string; key: string | null; messageId: string };
type Model = { turns: Turn[]; spokenSince: boolean; userMessages: number };

const TEXTS = ['yes', 'no', 'ok'];
const KEYS = ['k1', 'k2'];

const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('say' as const),
      text: fc.constantFrom(...TEXTS),
      times: fc.integer({ min: 1, max: 4 }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('keyed' as const),
      text: fc.constantFrom(...TEXTS),
      key: fc.constantFrom(...KEYS),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('operator' as const) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('resolve' as const) }) },
);

type Run = TestAssistant & { session_id: string; run: string; model: Model; conversationId: string };

const send = (run: Run, api: number, text: string, key?: string): Promise<Answer<ChatBody>> =>
  request(`${stack.urls[api % stack.urls.length]}/api/v1/chat`, {
    body: { session_id: run.session_id, message: text },
    bearer: run.apiKey,
    headers: { ...(key && { 'Idempotency-Key': `${run.run}-${key}` }) },
  });

/**
 * Waits until a reply is recorded as delivered. The record is written after the response, and the rules depend on the
 * record.
 */
const untilDelivered = async (turnId: string): Promise<void> => {
  const key = `{${stack.env.REDIS_PREFIX}-0}:delivered:${turnId}`;
  await eventually(async () => expect(await stack.service.redis.exists(key)).toBe(1));
};

const settle = async (run: Run, { body }: Answer<ChatBody>): Promise<void> => {
  run.conversationId = body.conversationId;
  const { body: record } = await run.history(body.conversationId);
  const message = record.messages.find(({ messageId }) => messageId === body.messageId);
  await untilDelivered(message?.turnId as string);
};

/** The turn that this request repeats according to the rules. Null if the request is a new turn. */
const expected = ({ model }: Run, text: string, key: string | null): Turn | null => {
  if (key !== null) return model.turns.find((turn) => turn.key === key) ?? null;
  const latest = model.turns.at(-1);
  return latest?.text === text && latest.key === null && !model.spokenSince ? latest : null;
};

const say = async (run: Run, text: string, key: string | null, times: number): Promise<void> => {
  const known = expected(run, text, key);
  if (key !== null && run.model.turns.some((turn) => turn.key === key && turn.text !== text)) {
    const refused = await send(run, 0, text, key);
    expect(refused).toMatchObject({ status: 422, body: { error: { code: 'idempotency_key_reused' } } });
    return;
  }
  const answers = await Promise.all(Array.from({ length: times }, (_, api) => send(run, api, text, key ?? undefined)));
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
  expect(new Set(answers.map(({ body }) => body.messageId)).size).toBe(1);
  const [first] = answers as [Answer<ChatBody>];
  const replayed = answers.filter(({ headers }) => headers.get('idempotent-replayed') === 'true');
  expect(replayed).toHaveLength(known ? times : times - 1);
  if (known) expect(first.body.messageId).toBe(known.messageId);
  else {
    expect(run.model.turns.map(({ messageId }) => messageId)).not.toContain(first.body.messageId);
    run.model.turns.push({ text, key, messageId: first.body.messageId });
    run.model.userMessages += 1;
    run.model.spokenSince = false;
  }
  await settle(run, first);
};

test('random conversations obey the rules of de-duplication', async () => {
  const assistant = await anAssistant(stack);
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistant.assistantId, { url: receiver.url });
  let announced = 0;

  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 14 }), async (steps) => {
      const id = randomUUID();
      const run: Run = {
        ...assistant,
        session_id: id,
        run: id,
        conversationId: '',
        model: { turns: [], spokenSince: false, userMessages: 0 },
      };
      for (const one of steps) {
        if (one.kind === 'say') await say(run, one.text, null, one.times);
        else if (one.kind === 'keyed') await say(run, one.text, one.key, 1);
        else if (run.conversationId !== '') {
          const where = { conversationId: run.conversationId };
          if (one.kind === 'operator') {
            await stack.service.conversations.transitions.replyAsOperator(where, 'a person speaks');
            run.model.spokenSince = true;
          } else await stack.service.conversations.transitions.resolve(where, randomUUID());
        }
      }
      if (run.conversationId === '') return;
      const { body } = await run.history(run.conversationId);
      expect(body.messages.filter(({ role }) => role === 'user')).toHaveLength(run.model.userMessages);
      announced += run.model.userMessages;
    }),
    { numRuns: RUNS, seed },
  );

  await eventually(() => {
    const messages = receiver.received.filter(({ headers }) => headers['x-factory-event'] === 'message.received');
    expect(messages).toHaveLength(announced);
  });
  record('retries', { conversations: RUNS, turns: announced });
});

test('a request that repeats one in flight joins it, whichever API process it reaches', async () => {
  const { apiKey, history } = await anAssistant(stack);
  const message = `held ${randomUUID()}`;
  const release = hold(message);
  const body = { session_id: randomUUID(), message };

  const sent = stack.urls.map((url) => request(`${url}/api/v1/chat`, { body, bearer: apiKey }));
  await eventually(async () => {
    const row = await stack.service.mongo.collection('conversations').findOne({ sessionId: body.session_id });
    expect(row?.waiting[0].replyTo).toHaveLength(2);
  });
  release();
  const [one, other] = await Promise.all(sent);

  expect(one?.body).toEqual(other?.body);
  expect((await history(one?.body.conversationId as string)).body.messages).toHaveLength(2);
});
