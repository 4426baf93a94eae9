import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { anAssistant, anEntry } from '../support/builders.ts';
import { useStack } from '../support/stack.ts';

const ENTRIES = 7_000;
const EDITS = 3;

const stack = useStack({ deliveryWorkers: 0, env: { SEMANTIC: 'off' } });

const aThing = (nth: number | string) =>
  anEntry({
    question: `Where is the thing number ${nth}?`,
    variants: [`I look for thing ${nth}`, `Which shelf holds article ${nth}`, `Please bring me number ${nth} today`],
    answer: `Thing ${nth} is on its shelf in the cellar. Ask at the desk for the key, and bring it back before closing.`,
  });

/** Processor time of this thread, because other programs do not affect it. */
const workedMs = (): number => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
};

/** The longest work between two turns of the event loop, measured until it is stopped. */
const watchLoop = () => {
  let watching = true;
  let longest = 0;
  const watched = (async () => {
    for (let last = workedMs(); watching; ) {
      await pause(1);
      const now = workedMs();
      longest = Math.max(longest, now - last);
      last = now;
    }
  })();
  return async (): Promise<number> => {
    watching = false;
    await watched;
    return longest;
  };
};

test('while one of 7,000 entries is edited, turns are answered, and the edit is soon used', {
  timeout: 120_000,
}, async () => {
  const knowledge = Array.from({ length: ENTRIES }, (_, nth) => aThing(nth));
  const { assistantId, chat } = await anAssistant(stack, { knowledge });
  const neighbour = await anAssistant(stack);
  const ask = async (message: string) => (await chat({ session_id: randomUUID(), message, language: 'en' })).body.reply;
  const [first] = await stack.service.assistants.listKnowledge(assistantId);
  const { entryId = '' } = first ?? {};
  expect(await ask('I look for thing 5')).toContain('Thing 5 is');

  const stalls: number[] = [];
  const worked: number[] = [];
  for (let edit = 0; edit < EDITS; edit += 1) {
    const name = `new${edit}x`;
    const begun = workedMs();
    const stopWatching = watchLoop();
    await stack.service.assistants.updateKnowledge(assistantId, entryId, aThing(name));
    while (!(await ask(`I look for thing ${name}`))?.includes(`Thing ${name} is`)) {
      expect((await neighbour.chat({ session_id: randomUUID(), message: 'hello' })).status).toBe(200);
      await pause(50);
    }
    stalls.push(await stopWatching());
    worked.push(workedMs() - begun);
  }

  expect(Math.min(...stalls)).toBeLessThan(50);
  expect(Math.min(...worked)).toBeLessThan(2_000);
});
