import { expect, test } from 'vitest';
import { anOperator } from '../support/operator-client.ts';
import { aReader, QUICK } from '../support/source-reading.ts';
import { useStack } from '../support/stack.ts';
import { aPage, aSentence, openWebsite, type SitePage, type Website } from '../kit/website.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0, sourcesWorkers: 1, timing: QUICK });

const openSite = async (pages: Record<string, SitePage>): Promise<Website> => {
  const site = await openWebsite(pages);
  return site;
};
/** The pages of a site that is read from this address, with their states. */
const read = async (url: string) => {
  const reader = await aReader(stack);
  const { sourceId } = await reader.addSite(url);
  const { state, error } = await reader.ended(sourceId);
  return { reader, sourceId, state, error, pages: await reader.pagesOf(sourceId) };
};
const refresh = (content: string, more = ''): string =>
  `<html><head><meta http-equiv="Refresh" content="${content}"></head><body>${more}</body></html>`;

test.each([
  ['0; url=./en/', '/'],
  ["5;URL='/en/'", '/'],
  ['0, /en/', '/start.html'],
])('a start page that leads on by itself (%s) is followed like a redirect', async (content, path) => {
  const site = await openSite({
    [path]: refresh(content),
    '/en/': aPage('Start', aSentence('the start'), ['/en/a']),
    '/en/a': aPage('A', aSentence('a')),
  });

  const { state, pages } = await read(site.url + path);

  expect([state, pages]).toEqual(['ready', { '/en/': 'read', '/en/a': 'read' }]);
});

test('other pages that lead on are skipped for where they lead, and a page that reloads itself is read', async () => {
  const site = await openSite({
    '/': aPage('Start', aSentence('the start'), ['/old', '/clock', '/slow']),
    '/old': refresh('0; url=/new', aSentence('old things')),
    '/new': aPage('New', aSentence('new things')),
    '/clock': refresh('5', `<p>${aSentence('the clock')}</p>`),
    '/slow': refresh('300; url=/elsewhere', `<p>${aSentence('slow things')}</p>`),
  });

  const { pages } = await read(`${site.url}/`);

  expect(pages).toEqual({
    '/': 'read',
    '/old': 'skipped: redirected',
    '/new': 'read',
    '/clock': 'read',
    '/slow': 'read',
  });
});

test('start pages that lead to each other end, and say what is wrong', async () => {
  const site = await openSite({ '/': refresh('0; url=/a'), '/a': refresh('0; url=/') });

  expect(await read(`${site.url}/`)).toMatchObject({ state: 'failed', error: { code: 'redirected' } });
});

test('links to the address that was typed lead to the site, and links to others do not', async () => {
  const site = await openSite({});
  const redirecting = (_request: { url?: string }, response: { writeHead: Function }) =>
    response.writeHead(301, { Location: `${site.url}${_request.url}` }).end();
  const typed = await openSite({ '*': redirecting });
  const other = await openSite({ '*': redirecting });
  site.pages.set('/', aPage('Start', aSentence('the start'), [`${typed.url}/repair`, `${other.url}/stolen`]));
  site.pages.set('/repair', aPage('Repair', aSentence('repairs')));
  site.pages.set('/stolen', aPage('Stolen', aSentence('stolen things')));

  const { reader, sourceId } = await read(`${typed.url}/`);

  const texts = await reader.visibleTexts(sourceId);
  expect(texts.map((text) => /The rules for ([\w ]+) are/.exec(text)?.[1]).toSorted()).toEqual([
    'repairs',
    'the start',
  ]);
  expect(other.asked).toEqual([]);
});

test('links below a typed path that leads to another path of the same site are followed', async () => {
  const to =
    (path: string): SitePage =>
    (_request, response) =>
      response.writeHead(302, { Location: path }).end();
  const site = await openSite({
    '/docs': to('/en/docs'),
    '/en/docs': aPage('Start', aSentence('the start'), ['/docs/a', '/blog']),
    '/docs/a': to('/en/docs/a'),
    '/en/docs/a': aPage('A', aSentence('a')),
    '/blog': aPage('Blog', aSentence('the blog')),
  });

  const { pages } = await read(`${site.url}/docs`);

  expect(pages).toEqual({ '/en/docs': 'read', '/docs/a': 'skipped: redirected', '/en/docs/a': 'read' });
});

test('a path with a dot is a folder, and its siblings are others', async () => {
  const site = await openSite({
    '/docs/v2.0': aPage('Two', aSentence('two'), ['/docs/v2.0/a', '/docs/v1.0', '/docs/v2.0.1']),
    '/docs/v2.0/a': aPage('A', aSentence('a')),
    '/docs/v1.0': aPage('One', aSentence('one')),
    '/docs/v2.0.1': aPage('Later', aSentence('later')),
  });

  const { pages, reader, sourceId } = await read(`${site.url}/docs/v2.0`);

  expect(pages).toEqual({ '/docs/v2.0': 'read', '/docs/v2.0/a': 'read' });
  const owner = await anOperator(stack);
  const { body } = await owner.get(`/assistants/${reader.assistantId}/sources/${sourceId}`);
  expect(body).toMatchObject({ counts: { found: 2, read: 2, failed: 0 } });
});

test('a page without pages below it says that it links to pages beside it, also once it is unchanged', async () => {
  const site = await openSite({
    '/news/prices-1.5': aPage('Prices', aSentence('prices'), ['/news/prices-1.5', '/news/parking', '/about']),
  });

  const { reader, sourceId } = await read(`${site.url}/news/prices-1.5`);
  const owner = await anOperator(stack);
  const errorsOf = async (): Promise<unknown> =>
    (await owner.get(`/assistants/${reader.assistantId}/sources/${sourceId}/pages`)).body;
  const first = await errorsOf();
  await reader.readAgain(sourceId, 2);

  const error = { code: 'pages_beside', message: expect.stringContaining(`add ${site.url}/news/`) };
  expect(first).toMatchObject({ pages: [{ state: 'read', error }] });
  expect(await errorsOf()).toMatchObject({ pages: [{ state: 'unchanged', error }] });
});
