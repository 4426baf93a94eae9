import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { anAssistant } from '../support/builders.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';
import { addPassages, addSources } from '../support/sources.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

/** Passages that were hidden before they got vectors. They stay without vectors until they are deleted. */
const HIDDEN = 2_000;
/** Visible passages with and without vectors. */
const MADE = 2_000;
const VISIBLE = 40;
const AT_ONCE = 16;
const KIND = { model: 'test', kind: null, made: 'test' };

test('neither hidden passages nor those with vectors are read when vectors are made and counted', async () => {
  const { passageVectors: vectors } = stack.service;
  const { assistantId } = await anAssistant(stack);
  const [sourceId = ''] = await addSources(stack, assistantId, { passages: VISIBLE });
  const ids = { assistantId, sourceId };
  const hidden = Array.from({ length: HIDDEN }, (_, nth) => ({ text: `hidden ${nth}`, until: 1, made: null }));
  await addPassages(stack, ids, hidden);
  const made = Array.from({ length: MADE }, (_, nth) => ({ text: `made ${nth}`, until: null, made: KIND.made }));
  await addPassages(stack, ids, made);
  await addPassages(
    stack,
    ids,
    Array.from({ length: VISIBLE }, (_, nth) => ({ text: `visible ${nth}`, until: null, made: null })),
  );
  const token = randomUUID();
  const found: string[] = [];

  const statements = await profileStatements(stack, async () => {
    expect(await vectors.claimVectors(token, KIND, [])).toMatchObject({ sourceId });
    for (;;) {
      const some = await vectors.listWithoutVectors(sourceId, KIND.made, AT_ONCE);
      if (some.length === 0) break;
      found.push(...some.map(({ text }) => text));
      const rows = some.map(({ passageId }) => ({ passageId, vector: new Uint8Array(4), tokens: null }));
      await vectors.saveVectors(sourceId, token, KIND, rows);
      await vectors.reportVectors(sourceId, token, KIND.made);
    }
    await vectors.endVectors(sourceId, token, KIND);
  });

  expect(found.toSorted()).toEqual(Array.from({ length: VISIBLE }, (_, nth) => `visible ${nth}`).toSorted());
  const read = statements.filter((one) => collectionIn(one) === 'passages').map(({ docsExamined = 0 }) => docsExamined);
  expect(read.length).toBeGreaterThan(VISIBLE / AT_ONCE);
  expect(Math.max(...read)).toBeLessThanOrEqual(AT_ONCE);
  const source = await stack.service.mongo.collection<{ _id: string }>('sources').findOne({ _id: sourceId });
  expect(source).toMatchObject({ vectors: { made: KIND.made }, counts: { embedded: MADE + VISIBLE } });
});
