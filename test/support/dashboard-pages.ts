import type { Page } from 'playwright-core';
import type { Scene } from './scene.ts';

type Shown = {
  name: string;
  path: (scene: Scene) => string;
  /** Runs once the page is loaded, for example to open a dialog. */
  after?: (page: Page) => Promise<void>;
};

const of = (page: string) => (scene: Scene) => `/assistants/${scene.assistantId}/${page}`;
const ofDrafted = (page: string) => (scene: Scene) => `/assistants/${scene.draftedId}/${page}`;
const press = (name: string) => async (page: Page) => {
  await page.getByRole('button', { name }).first().click();
  await page.getByRole('dialog').waitFor();
};

/** All pages, and the dialogs that people see first. */
export const PAGES: Shown[] = [
  { name: 'inbox', path: () => '/inbox?view=all' },
  { name: 'inbox-empty', path: () => '/inbox?view=snoozed' },
  { name: 'inbox-filters', path: () => '/inbox?view=all', after: press('Filters') },
  { name: 'inbox-conversation', path: ({ escalated }) => `/inbox/${escalated}?view=all` },
  {
    name: 'inbox-why',
    path: ({ escalated }) => `/inbox/${escalated}`,
    after: (page) => page.getByRole('button', { name: 'Why this reply' }).first().click(),
  },
  {
    name: 'inbox-details',
    path: ({ escalated }) => `/inbox/${escalated}`,
    after: async (page) => {
      const details = page.getByRole('button', { name: 'Details', exact: true });
      if (await details.isVisible()) await details.click();
    },
  },
  {
    name: 'inbox-note',
    path: ({ escalated }) => `/inbox/${escalated}`,
    after: (page) => page.getByText('Internal note', { exact: true }).last().click(),
  },
  { name: 'inbox-canned', path: ({ escalated }) => `/inbox/${escalated}`, after: press('Canned reply') },
  {
    name: 'inbox-canned-edit',
    path: ({ escalated }) => `/inbox/${escalated}`,
    after: async (page) => {
      await press('Canned reply')(page);
      await page.getByRole('button', { name: 'Edit canned replies' }).click();
      await page.getByRole('button', { name: 'New canned reply' }).waitFor();
    },
  },
  { name: 'inbox-snooze', path: ({ escalated }) => `/inbox/${escalated}`, after: press('Snooze') },
  { name: 'inbox-tag', path: ({ escalated }) => `/inbox/${escalated}`, after: press('Tag') },
  {
    name: 'inbox-help',
    path: () => '/inbox',
    after: press('Keyboard shortcuts'),
  },
  { name: 'overview', path: of('overview') },
  { name: 'usage', path: of('usage') },
  { name: 'on-call', path: () => '/on-call' },
  { name: 'on-call-found', path: ({ escalated }) => `/on-call?find=${escalated}` },
  { name: 'alerts', path: () => '/alerts' },
  {
    name: 'overview-numbers',
    path: of('overview?days=30'),
    after: (page) => page.getByText('Show the numbers').first().click(),
  },
  {
    name: 'learn',
    path: of('learn'),
    after: (page) =>
      page
        .getByText(/The latest/)
        .first()
        .click(),
  },
  { name: 'learn-entry', path: of('learn'), after: press('Make an entry') },
  {
    name: 'try-it-caller',
    path: of('try'),
    after: async (page) => {
      await page.getByLabel('As the caller sees it').check();
      await page.getByLabel('Message').fill('When are you open?');
      await page.getByRole('button', { name: 'Send' }).click();
      await page.getByLabel('response', { exact: true }).waitFor();
    },
  },
  {
    name: 'try-it',
    path: of('try'),
    after: async (page) => {
      for (const message of ['When are you open?', 'Can I bring my dog?']) {
        await page.getByLabel('Message').fill(message);
        await page.getByRole('button', { name: 'Send' }).click();
        await page
          .getByRole('button', { name: 'Why this reply' })
          .nth(message.startsWith('When') ? 0 : 1)
          .waitFor();
      }
      await page.getByRole('button', { name: 'Why this reply' }).first().click();
      await page.getByText('A knowledge entry').waitFor();
    },
  },
  {
    name: 'try-it-handover',
    path: of('try'),
    after: async (page) => {
      await page.getByLabel('Message').fill('I want to talk to a person');
      await page.getByRole('button', { name: 'Send' }).click();
      await page.getByText('A person answers now').waitFor();
    },
  },
  { name: 'knowledge', path: of('knowledge') },
  {
    name: 'knowledge-entry',
    path: of('knowledge'),
    after: async (page) => {
      await page.getByRole('list', { name: 'Knowledge' }).getByRole('button').first().click();
      await page.getByRole('dialog').waitFor();
    },
  },
  { name: 'knowledge-import', path: of('knowledge'), after: press('Import') },
  { name: 'sources', path: of('sources') },
  { name: 'sources-new', path: of('sources'), after: press('Add website') },
  { name: 'source', path: ({ assistantId, sourceId }) => `/assistants/${assistantId}/sources/${sourceId}` },
  {
    name: 'source-edit',
    path: ({ assistantId, sourceId }) => `/assistants/${assistantId}/sources/${sourceId}`,
    after: async (page) => {
      await page.getByRole('button', { name: 'More actions' }).click();
      await page.getByRole('menuitem', { name: 'Change name, schedule or paths…' }).click();
      await page.getByRole('dialog').waitFor();
    },
  },
  { name: 'evaluate', path: of('evaluate') },
  { name: 'evaluate-real', path: of('evaluate'), after: press('Try questions of visitors') },
  { name: 'evaluate-set', path: ({ assistantId, setId }) => `/assistants/${assistantId}/evaluate/sets/${setId}` },
  {
    name: 'evaluate-question',
    path: ({ assistantId, setId }) => `/assistants/${assistantId}/evaluate/sets/${setId}`,
    after: press('Add question'),
  },
  {
    name: 'evaluate-results',
    path: ({ assistantId, evaluationId }) => `/assistants/${assistantId}/evaluate/${evaluationId}`,
    after: (page) => page.getByRole('button', { name: 'Why this reply' }).first().click(),
  },
  {
    name: 'evaluate-draft',
    path: ({ draftedId, comparedId }) => `/assistants/${draftedId}/evaluate/${comparedId}`,
    after: (page) => page.getByRole('button', { name: 'Why this reply' }).first().click(),
  },
  { name: 'evaluate-sets-draft', path: ofDrafted('evaluate') },
  { name: 'versions', path: ofDrafted('versions') },
  { name: 'versions-off', path: of('versions') },
  { name: 'versions-publish', path: ofDrafted('versions'), after: press('Publish…') },
  { name: 'versions-knowledge', path: ofDrafted('knowledge') },
  { name: 'keys', path: of('keys') },
  { name: 'keys-new', path: of('keys'), after: press('Create key') },
  {
    name: 'keys-secret',
    path: of('keys'),
    after: async (page) => {
      await press('Create key')(page);
      await page.getByRole('dialog').getByLabel('Name').fill('Newsletter');
      await page.getByRole('dialog').getByRole('button', { name: 'Create key' }).click();
      await page.getByRole('button', { name: 'I have saved it' }).waitFor();
    },
  },
  { name: 'channel', path: of('channel') },
  {
    name: 'web',
    path: of('web'),
    after: (page) => page.getByRole('group', { name: 'Preview' }).getByRole('textbox').waitFor(),
  },
  { name: 'webhooks', path: of('webhooks') },
  { name: 'webhooks-new', path: of('webhooks'), after: press('Add endpoint') },
  {
    name: 'endpoint',
    path: ({ assistantId, endpointId }) => `/assistants/${assistantId}/webhooks/${endpointId}`,
    after: async (page) => {
      await page.getByRole('button', { name: 'Send test event' }).click();
      await page.getByText('The test event arrived.').waitFor();
    },
  },
  {
    name: 'endpoint-recover',
    path: ({ assistantId, rejected }) => `/assistants/${assistantId}/webhooks/${rejected.split(':')[1]}`,
    after: async (page) => {
      await press('Recover missed events…')(page);
      await page.getByLabel('Rejected').check();
      await page.getByRole('button', { name: 'Count events' }).click();
      await page.getByText('The oldest: ').waitFor();
    },
  },
  { name: 'deliveries', path: of('deliveries') },
  {
    name: 'delivery',
    path: ({ assistantId, delivered }) => `/assistants/${assistantId}/deliveries/${encodeURIComponent(delivered)}`,
  },
  {
    name: 'delivery-rejected',
    path: ({ assistantId, rejected }) => `/assistants/${assistantId}/deliveries/${encodeURIComponent(rejected)}`,
  },
  {
    name: 'delivery-queued',
    path: ({ assistantId, queued }) => `/assistants/${assistantId}/deliveries/${encodeURIComponent(queued)}`,
  },
  {
    name: 'delivery-resend',
    path: ({ assistantId, rejected }) => `/assistants/${assistantId}/deliveries/${encodeURIComponent(rejected)}`,
    after: press('Resend…'),
  },
  { name: 'settings', path: of('settings') },
  {
    name: 'settings-hours',
    path: of('settings'),
    after: async (page) => {
      await page.getByLabel('At certain times').check();
      await page.getByRole('button', { name: 'Add times on Monday' }).click();
      await page.getByLabel('Take an escalation within').fill('15');
      await page.getByLabel('If nobody takes it in time').selectOption('hand_back');
      await page.getByRole('button', { name: 'Add tag' }).click();
      await page.getByRole('button', { name: 'Save opening hours' }).scrollIntoViewIfNeeded();
    },
  },
  { name: 'assistants', path: () => '/assistants' },
  { name: 'operators', path: () => '/operators' },
  {
    name: 'operators-invite',
    path: () => '/operators',
    after: async (page) => {
      await press('Invite')(page);
      await page.getByLabel('Only some').check();
      await page.getByRole('combobox', { name: 'Their assistants' }).click();
      await page.getByRole('option').first().waitFor();
    },
  },
  {
    name: 'operators-assistants',
    path: () => '/operators',
    after: async (page) => {
      await page.getByRole('button', { name: 'Actions for bo@' }).click();
      await page.getByRole('menuitem', { name: 'Assistants…' }).click();
      await page.getByRole('dialog').getByText('Only some').waitFor();
    },
  },
  { name: 'operators-token-new', path: () => '/operators', after: press('Create token') },
  {
    name: 'operators-token-secret',
    path: () => '/operators',
    after: async (page) => {
      await press('Create token')(page);
      await page.getByRole('dialog').getByLabel('Name').fill('Deployment');
      await page.getByRole('dialog').getByRole('button', { name: 'Create token' }).click();
      await page.getByRole('button', { name: 'I have saved it' }).waitFor();
    },
  },
  { name: 'audit', path: () => '/audit' },
  { name: 'account', path: () => '/account' },
  { name: 'not-found', path: () => '/nowhere' },
];
