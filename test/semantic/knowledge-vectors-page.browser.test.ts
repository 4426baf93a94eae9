import { expect, test } from 'vitest';
import { useBrowser } from '../support/browser.ts';
import { go, visit } from '../support/dashboard.ts';
import { anEmbedder } from '../support/embedder.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { overflowOf } from '../support/page.ts';
import { anAssistantWithVectors, someEntries } from '../support/assistant-with-vectors.ts';
import { longTest } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const embedder = anEmbedder();
const stack = useStack({ embedder: () => embedder });
const browser = useBrowser();

longTest('the knowledge page shows how many entries are ready, and stops polling when all are', async () => {
  const owner = await anOperator(stack);
  const knower = await anAssistantWithVectors(stack, []);
  const held = Promise.withResolvers<void>();
  embedder.gate = (texts) => (texts.includes('Where is the thing number 30?') ? held.promise : undefined);
  await stack.service.assistants.addKnowledge(knower.assistantId, someEntries(1_200));
  const page = await browser.open(stack.url, { cookie: owner.cookie(), viewport: { width: 390, height: 844 } });
  let asked = 0;
  page.on('request', (request) => {
    if (request.url().endsWith('/knowledge-status')) asked += 1;
  });

  await go(page, `/assistants/${knower.assistantId}/knowledge`);
  await page.getByText(/^Semantic search: \d+ of 1,200 entries ready$/).waitFor();
  expect(await overflowOf(page)).toBe(0);
  held.resolve();
  await page.getByText('Semantic search: ready').waitFor();

  const before = asked;
  await page.getByRole('button', { name: 'Add entry' }).click();
  await page.getByRole('dialog').getByLabel('Question').fill('Is it the last one?');
  await page.getByRole('dialog').getByLabel('Answer', { exact: true }).fill('It is.');
  expect(asked).toBe(before);
  await page.getByRole('dialog').getByRole('button', { name: 'Add entry' }).click();
  await eventually(() => expect(asked).toBeGreaterThan(before));
  await page.getByText('Semantic search: ready').waitFor();
});

test('the pages say why semantic search is off', async () => {
  const owner = await anOperator(stack);
  const knower = await anAssistantWithVectors(stack, someEntries(1));
  embedder.set({ available: false });
  await eventually(async () => expect((await knower.status()).state).toBe('off'));
  const page = await browser.open(stack.url, { cookie: owner.cookie() });

  for (const name of ['knowledge', 'settings']) {
    await visit(page, `/assistants/${knower.assistantId}/${name}`);
    await page.getByText('Semantic search is off: its file is damaged').waitFor();
  }
});
