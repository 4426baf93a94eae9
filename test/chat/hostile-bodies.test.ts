import { sample } from 'fast-check';
import { expect, test } from 'vitest';
import { often, record, seed } from '../kit/fuzz-part.ts';
import type { AssistantEngine } from '../../src/replies/engines/engine.ts';
import { anAssistant, request } from '../support/builders.ts';
import { hostile, type Hostile } from '../support/hostile-bodies.ts';
import { useStack } from '../support/stack.ts';

const BODIES = often({ short: 200, whole: 20_000 });
const AT_ONCE = 20;
/** The engine does nothing, because this test is about the input. */
const engine: AssistantEngine = {
  name: 'brief',
  reply: async ({ language }) => ({ text: 'ok', suggestedActions: [], confidence: 1, low: false, language, why: {} }),
};
const stack = useStack({ engine });

test(`${BODIES} hostile bodies, drawn by seed ${seed}: documented answers only, and never a 500`, async () => {
  const { assistantId, apiKey, chat } = await anAssistant(stack, { knowledge: [] });
  await stack.service.assistants.setChannel(assistantId, { connected: true, token: null, limitPerMinute: 1_000_000 });
  const { body: opened } = await chat({ session_id: 'opened', message: 'hello' });
  const doors = [
    '/api/v1/chat',
    `/api/v1/channels/webhook/${assistantId}`,
    `/api/v1/conversations/${opened.conversationId}/escalate`,
  ];
  // `request` itself checks that each response is documented, with its headers and body.
  const send = async ({ body, headers }: Hostile, index: number): Promise<number> => {
    const url = `${stack.url}${doors[index % doors.length]}`;
    return (await request(url, { method: 'POST', body, headers, bearer: apiKey })).status;
  };

  const bodies = sample(hostile, { seed, numRuns: BODIES });
  const statuses: number[] = [];
  for (let start = 0; start < BODIES; start += AT_ONCE) {
    const some = bodies.slice(start, start + AT_ONCE).map((one, offset) => send(one, start + offset));
    statuses.push(...(await Promise.all(some)));
  }

  const others = [...statuses.entries()].filter(([, status]) => ![200, 413, 422, 429].includes(status));
  expect(others).toEqual([]);
  const count = (wanted: number) => statuses.filter((status) => status === wanted).length;
  // All kinds of bodies occur: some are accepted, most are refused.
  const counted = { 200: count(200), 413: count(413), 422: count(422) };
  const isPart = (of: number, part: number): boolean => of > BODIES * part;
  expect(counted).toSatisfy(() => isPart(counted[200], 0.1) && isPart(counted[413], 0.01) && isPart(counted[422], 0.3));
  expect(stack.logs.filter(({ level }) => Number(level) >= 50)).toEqual([]);
  record('bytes-bodies', { inputs: BODIES, ...counted });
  expect((await chat({ session_id: 'after', message: 'still well' })).status).toBe(200);
});
