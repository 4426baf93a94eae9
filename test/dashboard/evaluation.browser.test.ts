import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { runAdmin, useAdmin } from '../support/admin.ts';
import { useBrowser } from '../support/browser.ts';
import { anAssistant, anEntry, aTurn } from '../support/builders.ts';
import { go, visit } from '../support/dashboard.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { barriersIn } from '../support/page.ts';
import { openProvider, replyWith } from '../kit/provider.ts';
import { longTest } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });
const provider = useOpened(
  () => openProvider(),
  (one) => one.close(),
);
const browser = useBrowser();
const env = useAdmin(stack);

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

  await page.getByRole('button', { name: 'This is right' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
  await page.getByText('The question is changed.').waitFor();
  await visit(page, `/assistants/${assistantId}/evaluate`);
  await page.getByRole('button', { name: 'Evaluate “Release”' }).click();
  await page.getByText('1 right').waitFor();
});

test('a draft that breaks three answers is caught on the page, by the command and at publishing, before visitors see it', async () => {
  const broken = [
    anEntry({ question: 'What are your opening hours?', answer: 'We are open from 9 to 5.' }),
    anEntry({ question: 'Where can I park my car?', answer: 'Park behind the house.' }),
    anEntry({ question: 'How do I return a parcel?', answer: 'Send it back within 30 days.' }),
  ];
  const kept = anEntry({ question: 'Do you wrap presents?', answer: 'Yes, for free.' });
  const { assistantId, chat } = await anAssistant(stack, { knowledge: [...broken, kept] });
  const owner = await anOperator(stack);
  const own = `/assistants/${assistantId}`;
  expect((await owner.call('PATCH', own, { drafts: true, worseAllowed: 2 })).status).toBe(200);
  const { setId } = (await owner.post<{ setId: string }>(`${own}/question-sets`, { name: 'Release' })).body;
  const text = [...broken, kept].map(({ question, answer }) => `${question},text,"${answer}"\n`).join('');
  await owner.post(`${own}/question-sets/${setId}/import`, { format: 'csv', text: `question,expect,value\n${text}` });
  const { entries } = (await owner.get<{ entries: { entryId: string }[] }>(`${own}/knowledge`)).body;
  for (const { entryId } of entries.slice(0, broken.length)) await owner.call('DELETE', `${own}/knowledge/${entryId}`);
  const page = await browser.open(stack.url, { cookie: owner.cookie() });
  browser.expectComplaint(/409/);

  await go(page, `${own}/evaluate`);
  await page.getByRole('button', { name: 'Compare draft by “Release”' }).click();
  await page.waitForURL(/\/evaluate\/[0-9a-f-]+$/); // the list says “Done” of it too
  await page.getByText('Done').waitFor();
  const worse = page.getByRole('list', { name: 'Results' }).getByText('Worse', { exact: true });
  await eventually(async () => expect(await worse.count()).toBe(3));
  expect(await barriersIn(page)).toEqual([]);
  // Live is what is expected already.
  expect(await page.getByRole('button', { name: 'Live is right' }).count()).toBe(0);
  await page.getByRole('button', { name: 'Draft is right' }).first().click();
  expect(await page.getByRole('dialog').getByLabel('Expected answer').inputValue()).toBe('none');
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();

  const at = ['--assistant', assistantId, '--set', 'Release', '--draft'];
  const refused = await runAdmin(env, ['evaluate', ...at, '--max-worse', '2', '--json']);
  expect([refused.status, JSON.parse(refused.stdout)]).toMatchObject([1, { counts: { worse: 3, same: 1 } }]);
  const published = await runAdmin(env, ['draft', 'publish', '--assistant', assistantId]);
  expect([published.status, published.stderr]).toEqual([1, expect.stringContaining('3 cases got worse')]);
  for (const { question } of broken) expect(published.stderr).toContain(question);

  await visit(page, `${own}/versions`);
  await page.getByRole('button', { name: 'Publish…' }).click();
  await page.getByRole('button', { name: 'Publish', exact: true }).click();
  const named = page.getByRole('list', { name: 'Cases that got worse' }).getByRole('listitem');
  await named.first().waitFor();
  expect((await named.allTextContents()).toSorted()).toEqual(broken.map(({ question }) => question).toSorted());
  for (const { question: message, answer } of broken) expect((await chat(aTurn({ message }))).body.reply).toBe(answer);

  await page.getByRole('button', { name: 'Publish all the same' }).click();
  await page.getByText('Version 2 is live.').waitFor();
  await page.getByText('1 right, 0 offered, 3 wrong').waitFor();
});

test('an owner adds what an operator answered to a set, from the conversation', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const { conversationId } = (await chat(aTurn({ message: 'Where is my parcel?' }))).body;
  const owner = await anOperator(stack);
  await owner.post(`/conversations/${conversationId}/escalate`, {});
  const answer = 'It arrives tomorrow.';
  expect((await owner.post(`/conversations/${conversationId}/replies`, { content: answer })).status).toBe(201);
  const page = await browser.open(stack.url, { cookie: owner.cookie() });

  await go(page, `/inbox/${conversationId}?view=all`);
  await page.getByRole('button', { name: 'Add to a question set' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Add', exact: true }).click();
  await page.getByText('The question is in the set.').waitFor();

  const sets = `/assistants/${assistantId}/question-sets`;
  const listed = (await owner.get<{ sets: { setId: string }[] }>(sets)).body.sets;
  expect((await owner.get(`${sets}/${listed[0]?.setId}`)).body).toMatchObject({
    cases: [{ question: 'Where is my parcel?', expected: { kind: 'text', text: answer }, conversationId }],
  });
});

test('an owner downloads the questions of a set, and replaces them by the file that was changed', async () => {
  const { assistantId } = await anAssistant(stack);
  const owner = await anOperator(stack);
  const sets = `/assistants/${assistantId}/question-sets`;
  const { setId } = (await owner.post<{ setId: string }>(sets, { name: 'Release' })).body;
  await owner.post(`${sets}/${setId}/cases`, { question: 'Where?', expected: { kind: 'none' } });
  const page = await browser.open(stack.url, { cookie: owner.cookie() });
  await go(page, `/assistants/${assistantId}/evaluate/sets/${setId}`);

  const downloads = page.waitForEvent('download');
  await page.getByRole('button', { name: 'More actions' }).click();
  await page.getByRole('menuitem', { name: 'Download as CSV' }).click();
  const text = await readFile(await (await downloads).path(), 'utf8');
  const choosers = page.waitForEvent('filechooser');
  await page.getByRole('button', { name: 'Replace by a file' }).click();
  const file = { name: 'questions.csv', mimeType: 'text/csv', buffer: Buffer.from(`${text}Why?,,none,,\r\n`) };
  await (await choosers).setFiles(file);

  await page.getByText('2 questions imported.').waitFor();
  const { cases } = (await owner.get<{ cases: { question: string }[] }>(`${sets}/${setId}`)).body;
  expect(cases.map(({ question }) => question)).toEqual(['Where?', 'Why?']);
});

test('who compares a draft that asks a provider is shown first what it may use', async () => {
  const { assistantId } = await anAssistant(stack);
  const owner = await anOperator(stack);
  const own = `/assistants/${assistantId}`;
  await owner.call('PATCH', own, { drafts: true });
  await owner.call('PUT', `${own}/engine`, { kind: 'openai', baseUrl: provider.baseUrl, model: 'fake-1' });
  const { setId } = (await owner.post<{ setId: string }>(`${own}/question-sets`, { name: 'Release' })).body;
  await owner.post(`${own}/question-sets/${setId}/cases`, { question: 'Where?', expected: { kind: 'none' } });
  const page = await browser.open(stack.url, { cookie: owner.cookie() });

  await go(page, `${own}/evaluate`);
  await page.getByRole('button', { name: 'Compare draft by “Release”' }).click();

  expect(await page.getByLabel('Compare the draft with what is live').isChecked()).toBe(true);
  await page.getByLabel('Ask the provider').check();
  await page.getByText('At most 2 replies').waitFor();

  // So does the button of the set's own page.
  await go(page, `${own}/evaluate/sets/${setId}`);
  await page.getByRole('button', { name: 'Evaluate', exact: true }).click();
  expect(await page.getByLabel('Compare the draft with what is live').isChecked()).toBe(true);
  await page.getByLabel('Ask the provider').check();
  await page.getByText('At most 2 replies').waitFor();
  expect((await owner.get<{ evaluations: object[] }>(`${own}/evaluations`)).body.evaluations).toEqual([]);
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
