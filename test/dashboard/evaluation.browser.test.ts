import { afterAll, beforeAll, expect, test } from 'vitest';
import { useBrowser } from '../support/browser.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { go, visit } from '../support/dashboard.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { barriersIn } from '../support/page.ts';
import { openProvider, type Provider, replyWith } from '../support/provider.ts';
import { longTest } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });
let provider: Provider;
beforeAll(async () => {
  provider = await openProvider();
});
afterAll(() => provider.close());
const browser = useBrowser();

test('an owner tries a question of a visitor, marks its reply, and finds what a change broke', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  await chat(aTurn());
  const owner = await anOperator(stack);
  const page = await browser.open(stack.url, { cookie: owner.cookie() });
  await go(page, `/assistants/${assistantId}/evaluate`);

  await page.getByRole('button', { name: 'Try questions of visitors' }).click();
  await page.getByRole('button', { name: 'Begin' }).click();
  await page.getByText('Same', { exact: true }).waitFor();
  expect(await barriersIn(page)).toEqual([]);
  await page.getByRole('button', { name: 'Add to a set' }).click();
  await page.getByRole('dialog').getByLabel('Name of the new set').fill('Release');
  await page.getByRole('dialog').getByRole('button', { name: 'Add', exact: true }).click();
  await page.getByText('The question is in the set.').waitFor();
  const knowledge = await stack.service.assistants.listKnowledge(assistantId);
  await stack.service.assistants.removeKnowledge(
    assistantId,
    knowledge.map(({ entryId }) => entryId),
  );
  await eventually(async () => {
    await visit(page, `/assistants/${assistantId}/evaluate`);
    await page.getByRole('button', { name: 'Evaluate “Release”' }).click();
    await page.waitForURL(/\/evaluate\/[0-9a-f-]+$/);
    await page.getByText('Done').waitFor();
    expect(await page.getByRole('list', { name: 'Results' }).getByText('Wrong').count()).toBe(1);
  });
});

longTest('an owner sees what the provider may use, allows it, and sees what its words change', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  await stack.service.assistants.setEngine(assistantId, { kind: 'openai', baseUrl: provider.baseUrl, model: 'fake-1' });
  provider.behave(replyWith('We are open from 9 to 5.'));
  await chat(aTurn());
  provider.behave(replyWith('We are open from 9 to 6.'));
  const owner = await anOperator(stack);
  const page = await browser.open(stack.url, { cookie: owner.cookie() });
  await eventually(async () => {
    await go(page, `/assistants/${assistantId}/evaluate`);
    await page.getByRole('button', { name: 'Try questions of visitors' }).click();
    await page.getByLabel('How many of the last questions').fill('1');
    await page.getByLabel('Ask the provider').check();
    await page.getByText('At most 1 reply, about 127 tokens').waitFor({ timeout: 2_000 });
  });
  expect(await barriersIn(page)).toEqual([]);
  await page.getByLabel('Tokens that it may use').fill('5000');
  await page.getByRole('button', { name: 'Begin' }).click();

  await page.getByText('127 of 5,000 tokens').waitFor();
  await page.getByText('Only before: 5. Only now: 6.').waitFor();
  expect(await barriersIn(page)).toEqual([]);
});
