import { randomUUID } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { createLogger } from '../../src/platform/process/logger.ts';
import { createInFlight } from '../../src/replies/answer-turn.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { useStack } from '../support/stack.ts';

// Jobs are for turns that the gate counts until they are answered. All others have slots, which assistants share.

const { engine, hold, asked } = aScriptedEngine(() => ({}), { needsProvider: () => false });
/** The worker has one job, so that one turn that keeps it stops all others. */
const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0, env: { REPLY_CONCURRENCY: '1' } });

/** An assistant and its neighbour, whose entries are read already. `send` sends a message that is held. */
const twoAssistants = async () => {
  const [{ chat }, neighbour] = [await anAssistant(stack), await anAssistant(stack)];
  const session_id = randomUUID();
  const held: (() => void)[] = [];
  const send = async (message: string): Promise<() => void> => {
    const letGo = hold(message);
    held.push(letGo);
    const { status } = await chat(aTurn({ session_id, message }), { headers: { Prefer: 'respond-async' } });
    expect(status).toBe(202);
    return letGo;
  };
  const startWorker = async (): Promise<void> => {
    const { close } = await stack.startReplyWorker(engine);
    onTestFinished(async () => {
      for (const letGo of held) letGo();
      await close();
    });
  };
  const askBeside = async (): Promise<number> => (await neighbour.chat(aTurn())).status;
  const readEntries = async () => {
    expect((await chat(aTurn())).status).toBe(200);
    expect(await askBeside()).toBe(200);
  };
  return { send, startWorker, readEntries, askBeside };
};

const isAsked = (message: string) => eventually(() => expect(asked).toContain(message));

test('a session with many waiting turns keeps no job', async () => {
  const { send, startWorker, readEntries, askBeside } = await twoAssistants();
  await startWorker();
  await readEntries();
  const answerFirst = await send('the first');
  await isAsked('the first');
  await send('the second');
  answerFirst();
  await isAsked('the second');

  expect(await askBeside()).toBe(200);
});

test('a turn that takes long leaves its job', async () => {
  const { send, startWorker, readEntries, askBeside } = await twoAssistants();
  await startWorker();
  await readEntries();
  await send('a long one');
  await isAsked('a long one');

  expect(await askBeside()).toBe(200);
});

test('a long turn leaves its job also if its assistant has no free slot', async () => {
  const inFlight = createInFlight({ total: 4, logger: createLogger({ name: 'test', level: 'silent' }) });
  const { promise: longAnswer, resolve } = Promise.withResolvers<void>();
  const answer = async () => {
    await longAnswer;
    return null;
  };
  for (const turnId of ['one', 'two', 'three', 'four', 'five'])
    inFlight.start({ assistantId: 'a', turnId, isSoon: true, pauseMs: 0, answer, enqueue: () => undefined });

  await inFlight.untilLate('a', longAnswer);

  expect(inFlight.isLate('a')).toBe(true);
  resolve();
  await inFlight.close();
  expect(inFlight.isLate('a')).toBe(false);
});

test('a turn whose entries must be read keeps no job', async () => {
  const { send, startWorker, askBeside } = await twoAssistants();
  await startWorker();
  await send('after a read');
  await isAsked('after a read');

  expect(await askBeside()).toBe(200);
});
