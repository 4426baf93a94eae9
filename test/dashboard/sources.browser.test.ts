import { expect, test } from 'vitest';
import { useBrowser } from '../support/browser.ts';
import { anAssistant } from '../support/builders.ts';
import { go } from '../support/dashboard.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { addPages, addPassages, addProposals, setSource } from '../support/sources.ts';
import { longTest } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0, replyWorkers: 0 });
const browser = useBrowser();

const owner = useOpened(() => anOperator(stack));

/** The owner's page is the same in all tests, because it loads faster when it has been loaded before. */
const anOwnerAtSources = async () => {
  const { assistantId } = await anAssistant(stack, { knowledge: [] });
  const page = await browser.openOnce(stack.url, { cookie: owner.cookie() });
  await go(page, `/assistants/${assistantId}/sources`);
  return { page, assistantId, stored: () => stack.service.sources.list(assistantId) };
};

test('an owner adds a website, watches it being read, changes it and removes it', async () => {
  const { page, assistantId, stored } = await anOwnerAtSources();
  browser.expectComplaint(/status of 422/);

  await page.getByText('No sources yet').waitFor();
  await page.getByRole('button', { name: 'Add website' }).click();
  await page.getByLabel('Address').fill('ftp://127.0.0.1/');
  await page.getByRole('button', { name: 'Add', exact: true }).click();
  await page.getByText('Must be an http or https address').waitFor();
  await page.getByLabel('Address').fill('http://127.0.0.1:9/help/');
  await page.getByLabel('Read it again').selectOption('weekly');
  await page.getByText('Choose paths').click();
  await page.getByLabel('Not these paths').fill('/help/old/**\n\n/help/drafts/*');
  await page.getByRole('button', { name: 'Add', exact: true }).click();
  const row = page.getByRole('list', { name: 'Sources' }).getByRole('listitem');
  await row.getByText('Waits to be read').waitFor();

  const [source] = await stored();
  if (!source) throw new Error('nothing was added');
  expect(source).toMatchObject({ kind: 'site', schedule: 'weekly', exclude: ['/help/old/**', '/help/drafts/*'] });
  const counts = { ...source.counts, found: 8, read: 2, passages: 9 };
  await setSource(stack, source, { state: 'running', run: 1, live: 1, counts });
  await row.getByText('Reading: 2 of 10 pages').waitFor();
  await row.getByRole('link').click();
  const error = { code: 'http_status', message: 'The server answered 500.' };
  await addPages(stack, source, [{}, {}, { state: 'failed', title: null, error }]);
  const done = { ...counts, read: 9, failed: 1, embedded: 9 };
  const changed = { added: 1, changed: 0, removed: 2 };
  await setSource(stack, source, { state: 'ready', run: 2, live: 2, endedAt: new Date(), counts: done, changed });
  await page.getByText('1 added, 2 removed').waitFor();
  await page.getByLabel('State of pages').selectOption('failed');
  const pages = page.getByRole('list', { name: 'Pages of the source' });
  await pages.getByText('The server answered 500.').waitFor();
  await eventually(async () => expect(await pages.getByRole('listitem').count()).toBe(1));

  await page.getByRole('button', { name: 'Refresh now' }).click();
  await page.getByText('Waits to be read').waitFor();
  expect(await page.getByRole('button', { name: 'Refresh now' }).isDisabled()).toBe(true);
  await page.getByRole('button', { name: 'More actions' }).click();
  await page.getByRole('menuitem', { name: 'Change name, schedule or paths…' }).click();
  await page.getByLabel('Name').fill('Help pages');
  await page.getByLabel('Only these paths').fill('/help/**');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('heading', { level: 1, name: 'Help pages' }).waitFor();
  expect((await stored())[0]).toMatchObject({ name: 'Help pages', include: ['/help/**'], schedule: 'weekly' });

  await page.getByRole('button', { name: 'More actions' }).click();
  await page.getByRole('menuitem', { name: 'Remove…' }).click();
  await page.getByRole('button', { name: 'Remove source' }).click();
  await page.getByText('No sources yet').waitFor();
  expect([await stored(), page.url().endsWith(`/assistants/${assistantId}/sources`)]).toEqual([[], true]);
});

test('an owner uploads files, and is told which one is refused', async () => {
  const { page, stored } = await anOwnerAtSources();
  browser.expectComplaint(/status of 422/);
  const choose = async (...names: string[]) => {
    const chooser = page.waitForEvent('filechooser');
    await page.getByRole('button', { name: 'Upload files' }).click();
    const files = names.map((name) => ({ name, mimeType: 'text/plain', buffer: Buffer.from('# Hours\n\nFrom 9.') }));
    await (await chooser).setFiles(files);
  };

  await choose('Hours.md', 'Prices & terms.txt');
  await page.getByText('2 files are added.').waitFor();
  const rows = page.getByRole('list', { name: 'Sources' });
  await rows.getByText('Prices & terms.txt').waitFor();
  await choose('program.exe');
  await page.getByText(/must end with one of/).waitFor();

  expect((await stored()).map(({ name }) => name)).toEqual(['Hours.md', 'Prices & terms.txt']);
});

longTest('an owner accepts and dismisses what is proposed, one by one and all', async () => {
  const { page, assistantId } = await anOwnerAtSources();
  const source = await stack.service.sources.add(assistantId, { kind: 'page', url: 'http://127.0.0.1:9/' });
  await addPassages(stack, source, ['We open at nine.']);
  await addProposals(
    stack,
    source,
    Array.from({ length: 8 }, () => ({})),
  );
  await page.reload();
  const proposed = page.getByRole('list', { name: 'Proposed entries' });
  const questions = async () =>
    (await stack.service.assistants.listKnowledge(assistantId)).map(({ question }) => question);

  await page.getByRole('button', { name: 'Accept “What is number 0?”' }).click();
  await page.getByText('1 entry of the knowledge added or changed.').waitFor();
  await page.getByRole('button', { name: 'Dismiss “What is number 1?”' }).click();
  await proposed.getByText('What is number 1?').waitFor({ state: 'detached' });
  expect(await questions()).toEqual(['What is number 0?']);
  await page.getByRole('button', { name: 'Show all 6' }).click();
  await page.getByRole('button', { name: 'Accept all new' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Accept all' }).click();
  await page.getByText('6 entries of the knowledge added or changed.').waitFor();

  await eventually(async () => expect(await proposed.count()).toBe(0));
  expect(await questions()).toHaveLength(7);
});
