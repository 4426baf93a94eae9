import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { adminJson, runAdmin, useAdmin } from '../support/admin.ts';
import { anAssistant } from '../support/builders.ts';
import { addPages, addProposals, setSource } from '../support/sources.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const env = useAdmin(stack);

type Source = { sourceId: string; kind: string; name: string; state: string; url: string | null };

const SITE = 'http://127.0.0.1:9/help/';
const admin = <Value = Source>(...args: string[]): Promise<Value> => adminJson<Value>(env, ...args);

const anOwn = async () => {
  const { assistantId } = await anAssistant(stack);
  const own = ['--assistant', assistantId];
  return { assistantId, own, list: () => admin<Source[]>('source', 'list', ...own) };
};

test('a website is added, changed, read again and removed', async () => {
  const { own, list, assistantId } = await anOwn();
  const paths = ['--include', '/help/**,/faq', '--exclude', '/help/old/**', '--schedule', 'daily'];

  const added = await admin('sources', 'add', SITE, ...own, ...paths);
  const { sourceId } = added;
  await setSource(stack, added, { state: 'ready', nextAt: null });
  const changed = await admin('source', 'update', sourceId, ...own, '--name', 'Help', '--schedule', 'weekly');
  const again = await admin('source', 'refresh', sourceId, ...own);
  const listed = await list();
  await addProposals(stack, { assistantId, sourceId }, [{}, {}]);
  const shown = await runAdmin(env, ['source', 'list', ...own]);
  await admin('source', 'remove', sourceId, ...own);

  expect(added).toMatchObject({
    kind: 'site',
    url: SITE,
    schedule: 'daily',
    include: ['/help/**', '/faq'],
    exclude: ['/help/old/**'],
  });
  expect([changed, again]).toMatchObject([{ name: 'Help', schedule: 'weekly', state: 'ready' }, { state: 'waiting' }]);
  expect(listed).toEqual([again]);
  expect(shown.stdout).toMatch(/SOURCE +KIND +NAME +STATE/);
  expect(shown.stdout).toContain('2 proposed entries wait in the dashboard.');
  expect(await list()).toEqual([]);
});

test('a page and a file are added, and the pages of a source are listed by state', async () => {
  const { own, assistantId } = await anOwn();
  const file = join(tmpdir(), `${randomUUID()}.md`);
  await writeFile(file, '# Handbook\n\nWe open at nine.');

  const page = await admin('source', 'add', SITE, '--page', ...own);
  const uploaded = await admin('source', 'add', file, '--name', 'Handbook.md', ...own);
  const states = Array.from({ length: 130 }, (_, nth) => (nth % 13 === 0 ? ('failed' as const) : ('read' as const)));
  await addPages(
    stack,
    { assistantId, sourceId: page.sourceId },
    states.map((state) => ({ state })),
  );
  const pages = ['source', 'pages', page.sourceId, ...own];
  const [all, failed] = [await admin<object[]>(...pages), await admin<object[]>(...pages, '--state', 'failed')];

  expect([page, uploaded]).toMatchObject([
    { kind: 'page', url: SITE },
    { kind: 'file', name: 'Handbook.md', url: null },
  ]);
  const chunk = await stack.service.mongo.collection('sourceFiles').findOne({ sourceId: uploaded.sourceId });
  expect(String(chunk?.['bytes'])).toBe('# Handbook\n\nWe open at nine.');
  expect([all.length, failed.length]).toEqual([130, 10]);
});

test('with drafts a source is added, removed and kept in the draft, which shows it', async () => {
  const { own, assistantId } = await anOwn();
  await admin('assistant', 'update', assistantId, '--drafts', 'on');
  const run = async (...args: string[]) => (await runAdmin(env, [...args, ...own])).stdout;

  const added = await run('source', 'add', SITE);
  const [sourceId = ''] = /[0-9a-f-]{36}/.exec(added) ?? [];
  const shown = await run('draft', 'show');
  const published = await run('draft', 'publish');
  const removed = await run('source', 'remove', sourceId);
  const listed = await run('source', 'list');
  const kept = await run('source', 'keep', sourceId);

  expect(added).toBe(`Source ${sourceId} is added in the draft and will be read.\n`);
  expect(shown).toMatch(/added +source 127\.0\.0\.1:9\/help/);
  expect(published).toBe('Version 2 is live: sources added: 1.\n');
  expect(removed).toBe('127.0.0.1:9/help is removed in the draft.\n');
  expect(listed).toMatch(/DRAFT[^]* removed/);
  expect(kept).toBe(`Source ${sourceId} is kept.\n`);
});

test('what is wrong is said in one line', async () => {
  const { own, assistantId } = await anOwn();
  const id = randomUUID();
  const say = async (...args: string[]) => {
    const { status, stderr } = await runAdmin(env, ['source', ...args, ...own]);
    return `${status} ${stderr.trim()}`;
  };

  expect([
    await say('add', '/nowhere/a.md'),
    await say('add', '/nowhere/a.md', '--schedule', 'daily'),
    await say('add', 'http://a:b@127.0.0.1/'),
    await say('update', id),
    await say('refresh', id),
  ]).toEqual([
    '1 /nowhere/a.md cannot be read: ENOENT.',
    '2 A file has a name, and no other options.',
    '1 url must not carry a user name or password',
    '2 Give what to change.',
    `1 There is no source ${id} of assistant ${assistantId}.`,
  ]);
});
