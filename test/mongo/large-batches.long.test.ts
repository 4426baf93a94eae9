import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import type { AssistantEngine } from '../../src/replies/engines/engine.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { useStack } from '../support/stack.ts';

/** The longest possible answer, so that stored documents have their maximum size. */
const engine: AssistantEngine = {
  name: 'long-winded',
  needsProvider: () => false,
  answersImmediately: () => true,
  reply: async ({ language }) => ({
    text: '答'.repeat(8_000),
    suggestedActions: [],
    confidence: 1,
    low: false,
    language,
    why: {},
  }),
};
const stack = useStack({ engine, env: { REPLY_TIMEOUT_MS: '25000' } });

const ANSWERED_MS = 220_000;
const message = () => `${randomUUID()}${'問'.repeat(7_900)}`;

/** In the ninth round, a page of eight turns (380 kB) is stored for every session. */
test.each([
  { name: '200 sessions at once', sessions: 200, atOnce: 1, rounds: 1 },
  { name: '150 sessions at once, for nine rounds', sessions: 150, atOnce: 1, rounds: 9 },
  { name: '60 sessions with 18 unanswered messages each', sessions: 60, atOnce: 18, rounds: 1 },
])('$name, all of 7,900 Chinese characters, are all answered', async (load) => {
  const { chat, history } = await anAssistant(stack);
  const sessions = Array.from({ length: load.sessions }, () => randomUUID());
  const ids = new Set<string>();
  // More turns at once than a slow machine answers within two seconds: some are refused with 503 at first, or a write is
  // so slow that its outcome is unknown (500). Both may be sent again.
  const untilAnswered = (turn: Parameters<typeof chat>[0]) =>
    eventually(async () => {
      const answer = await chat(turn);
      expect(answer.status).toBe(200);
      return answer;
    }, ANSWERED_MS);
  // Code that has never run is slow, and a service that is slower than its callers refuses some of them.
  for (let turn = 0; turn < 20; turn += 1) await chat({ session_id: randomUUID(), message: message(), language: 'zh' });

  for (let round = 0; round < load.rounds; round += 1) {
    const answers = await Promise.all(
      sessions.flatMap((session_id) =>
        Array.from({ length: load.atOnce }, () => untilAnswered({ session_id, message: message(), language: 'zh' })),
      ),
    );
    expect(new Set(answers.map(({ body }) => body.messageId)).size).toBe(sessions.length * load.atOnce);
    for (const { body } of answers) ids.add(body.conversationId);
  }

  expect(ids.size).toBe(load.sessions);
  const { messages } = (await history([...ids][0] ?? '')).body;
  expect(messages).toHaveLength(2 * load.atOnce * load.rounds);
});
