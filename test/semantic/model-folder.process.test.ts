import { rm } from 'node:fs/promises';
import { expect, onTestFinished, test } from 'vitest';
import { runAdmin } from '../support/admin.ts';
import { aHotel } from '../support/hotel.ts';
import { aChosenModel, isLocalModelFor } from '../kit/semantic.ts';
import { openStack } from '../support/stack.ts';

test.runIf(isLocalModelFor)('a chosen model answers as the local one does, if it is the same', async () => {
  const folder = await aChosenModel();
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const stack = await openStack({ env: { SEMANTIC_MODEL: folder }, deliveryWorkers: 0 });
  onTestFinished(() => stack.close());
  const hotel = await aHotel(stack);

  const { reply, why } = await hotel.aGuest()('can I bring my dog');
  const { stdout } = await runAdmin(stack.env, ['doctor', '--json']);

  expect(reply).toBe(hotel.answerTo('Are pets allowed?'));
  expect(why).toMatchObject({ kind: 'answer', by: 'both', hits: [{ meaning: expect.closeTo(0.843, 2) }, {}, {}] });
  const detail = expect.stringMatching(/^multilingual-e5-small@[0-9a-f]{12}$/);
  expect(JSON.parse(stdout)).toMatchObject({ semantic: { available: true, detail } });
});

test('a folder without a model is a problem that the doctor names', async () => {
  const { stdout } = await runAdmin({ SEMANTIC: 'on', SEMANTIC_MODEL: '/nowhere' }, ['doctor', '--json']);

  expect(stdout).toContain('SEMANTIC_MODEL has no graph: none of onnx/model.onnx');
});
