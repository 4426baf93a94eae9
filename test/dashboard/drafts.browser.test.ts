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

test('an entry that the guard rail keeps from being published is in the draft once, and its editor is closed', async () => {
  const { assistantId } = await anAssistant(stack);
  const owner = await anOperator(stack);
  await owner.call('PATCH', `/assistants/${assistantId}`, { drafts: true, worseAllowed: 0 });
  const page = await browser.open(stack.url, { cookie: owner.cookie() });
  browser.expectComplaint(/409/);

  await go(page, `/assistants/${assistantId}/knowledge`);
  await page.getByRole('button', { name: 'Add entry' }).click();
  await page.getByRole('dialog').getByLabel('Question').fill('Where can I park?');
  await page.getByRole('dialog').getByLabel('Answer').fill('Behind the house.');
  await page.getByRole('button', { name: 'Save and publish' }).click();

  await page.getByText('This draft was not compared with what is live.').waitFor();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.getByText('visitors do not see these changes yet').waitFor();
  await visit(page, `/assistants/${assistantId}/versions`);
  await page.getByText(`Begun by ${owner.email}`).waitFor();
  const changes = page.getByRole('list', { name: 'Changes of the draft' }).getByRole('listitem');
  expect(await changes.count()).toBe(1);
});

test('an owner adds a source in a draft, publishes it, and keeps it after removing it in the next draft', async () => {
  const { assistantId } = await anAssistant(stack);
  const owner = await anOperator(stack);
  await owner.call('PATCH', `/assistants/${assistantId}`, { drafts: true });
  const page = await browser.open(stack.url, { cookie: owner.cookie() });
  await go(page, `/assistants/${assistantId}/sources`);

  await page.getByRole('button', { name: 'Add website' }).click();
  await page.getByLabel('Address').fill('http://127.0.0.1:9/help/');
  await page.getByRole('button', { name: 'Add', exact: true }).click();
  await page.getByText('Added in the draft').waitFor();
  await page.getByText('1 source added').waitFor();
  expect(await barriersIn(page)).toEqual([]);
  await page.getByRole('button', { name: 'Publish…' }).click();
  await page.getByRole('button', { name: 'Publish', exact: true }).click();
  await page.getByText('Version 2 is live.').waitFor();
  await page.getByText('Added in the draft').waitFor({ state: 'detached' });

  await page.getByRole('list', { name: 'Sources' }).getByRole('link').click();
  await page.getByRole('button', { name: 'More actions' }).click();
  await page.getByRole('menuitem', { name: 'Remove…' }).click();
  await page.getByText('Visitors get answers from it until you publish.').waitFor();
  await page.getByRole('button', { name: 'Remove source' }).click();
  await page.getByText('Removed in the draft').waitFor();
  await visit(page, `/assistants/${assistantId}/versions`);
  await page.getByText('1 source added').waitFor();
  await page.getByRole('list', { name: 'Changes of the draft' }).getByRole('link').click();
  await page.getByText('The draft removes this source').waitFor();
  expect(await barriersIn(page)).toEqual([]);
  await page.getByRole('button', { name: 'Keep it' }).click();
  await page.getByText('The draft removes this source').waitFor({ state: 'detached' });
});
