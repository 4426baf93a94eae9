import { expect, test } from 'vitest';
import { useBrowser } from '../support/browser.ts';
import { anAssistant } from '../support/builders.ts';
import { go, visit } from '../support/dashboard.ts';
import { anOperator } from '../support/operator-client.ts';
import { barriersIn } from '../support/page.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0, replyWorkers: 0 });
const browser = useBrowser();

test('an owner publishes one entry with two clicks and several changes as a version with a name, and rolls back', async () => {
  const { assistantId } = await anAssistant(stack);
  const owner = await anOperator(stack);
  const page = await browser.open(stack.url, { cookie: owner.cookie() });
  await go(page, `/assistants/${assistantId}/versions`);
  await page.getByRole('button', { name: 'Switch drafts on' }).click();
  await page.getByText('No draft', { exact: true }).waitFor();
  const live = async () => (await stack.service.assistants.listKnowledge(assistantId)).map(({ answer }) => answer);
  const edit = async (answer: string, button: string) => {
    await page.getByRole('button', { name: 'What are your opening hours?' }).click();
    await page.getByRole('dialog').getByLabel('Answer').fill(answer);
    await page.getByRole('dialog').getByRole('button', { name: button }).click();
  };

  await visit(page, `/assistants/${assistantId}/knowledge`);
  await edit('From 10 to 6.', 'Save and publish');
  await page.getByText('The entry is published.').waitFor();
  expect(await live()).toEqual(['From 10 to 6.']);

  await edit('From 11 to 6.', 'Save entry');
  await page.getByText('visitors do not see these changes yet').waitFor();
  expect(await barriersIn(page)).toEqual([]);
  expect(await live()).toEqual(['From 10 to 6.']);
  await page.getByRole('button', { name: 'Publish…' }).click();
  await page.getByLabel('Name of the version').fill('Winter');
  await page.getByRole('button', { name: 'Publish', exact: true }).click();
  await page.getByText('Version 3 is live.').waitFor();
  expect(await live()).toEqual(['From 11 to 6.']);
  await visit(page, `/assistants/${assistantId}/versions`);
  await page.getByText('3: Winter').waitFor();
  expect(await barriersIn(page)).toEqual([]);

  await page.getByRole('button', { name: 'Roll back to version 2' }).click();
  await page.getByRole('button', { name: 'Roll back', exact: true }).click();
  await page.getByText('Version 4 is live.').waitFor();
  await page.getByText('Back to version 2.').waitFor();
  expect(await live()).toEqual(['From 10 to 6.']);
});
