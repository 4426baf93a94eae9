import { expect, test } from 'vitest';
import { anAssistant } from '../support/builders.ts';
import { createFeed } from '../kit/feed.ts';
import { watchLoop } from '../support/loop.ts';
import { atPace } from '../support/pace.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { projectOn } from '../support/projection.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

const COUNT = sized({ everyday: 1, long: 3 });
/** More than the projection reads at once, in each conversation. */
const MESSAGES = sized({ everyday: 45, long: 60 });

test('long messages without spaces do not hold the loop, and are found', async () => {
  const { assistantId } = await anAssistant(stack, { knowledge: [] });
  const { mongo, insights } = stack.service;
  const lao = 'ສະບາຍດີຂ້ອຍຢາກສັ່ງ';
  const texts = Object.fromEntries(
    Array.from({ length: MESSAGES }, (_, nth) => [
      String(nth + 1),
      [{ role: 'operator', content: `${lao.repeat(444)}${nth}`, turnId: null, createdAt: new Date() }],
    ]),
  );
  const keys = await createFeed(stack.service).openConversations(assistantId, COUNT);
  await mongo
    .collection<{ _id: string }>('conversations')
    .updateMany({ _id: { $in: keys } }, { $set: { texts, seq: MESSAGES, storedTo: 0 } });
  const project = projectOn(stack);

  const stopWatching = watchLoop();
  let [behind, steps] = [keys, 0];
  for (; behind.length > 0 && steps < 100; steps += 1) behind = (await project(behind)).behind;

  const { ms, name } = stopWatching();
  expect(ms, name).toBeLessThan(atPace(100));
  expect(steps).toBeGreaterThan(1);
  const found = await insights.findByWords([assistantId], 'ສະບາຍດີ', { limit: 50 });
  expect(found.map(({ key }) => key).toSorted()).toEqual(keys.toSorted());
});
