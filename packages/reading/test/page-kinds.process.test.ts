import { afterAll, expect, test } from 'vitest';
import { openReader, type ReadInput, type ReadPage } from '@parley/reading';
import { aFile, aPage } from './files.ts';

const reader = openReader();
afterAll(() => reader.close());

const read = async (input: ReadInput): Promise<ReadPage> => {
  const page = await reader.read(input);
  if ('failed' in page) throw new Error(`${page.failed}: ${page.message}`);
  return page;
};
const textOf = async (input: ReadInput): Promise<string> =>
  (await read(input)).passages.map(({ path, text }) => [...path.slice(1), text].join('\n')).join('\n');
const aMain = (markup: string): ReadInput => aPage(`<main><h1>Delivery</h1>${markup}</main>`);

/** So long that it is a passage of its own. */
const LONG =
  'Parcels are packed by hand in the old customs house, and each is signed by the person who packed it. '.repeat(6);
const folded = (open: (title: string) => string, panel: (text: string) => string): string =>
  [
    ['Norway', `Parcels cost 14 euros. ${LONG}`],
    ['Malta', `Parcels cost 11 euros. ${LONG}`],
  ]
    .map(([title = '', text = '']) => `<div>${open(`Shipping to ${title}`)}${panel(text)}</div>`)
    .join('');
const panel = (text: string): string => `<div class="panel" aria-hidden="true"><p>${text}</p></div>`;

test.each([
  ['a class', (title: string) => `<button class="accordion">${title}</button>`],
  ['its state', (title: string) => `<button aria-expanded="false"><span>${title}</span></button>`],
  ['what it controls', (title: string) => `<div><button aria-controls="a">${title}</button></div>`],
  ['a role', (title: string) => `<div role="button" aria-expanded="true"><p>${title}</p></div>`],
  ['a popover', (title: string) => `<button popovertarget="p">${title}</button>`],
  ['its script', (title: string) => `<button @click="open = !open">${title}</button>`],
  ['Bootstrap', (title: string) => `<a class="x" data-bs-toggle="collapse" href="#c">${title}</a>`],
  [
    'a label',
    (title: string, id = title.length) => `<input type="checkbox" id="t${id}"><label for="t${id}">${title}</label>`,
  ],
])('a title that folds its text, known by %s, is a heading of that text alone', async (_, open) => {
  const { passages } = await read(aMain(`${folded(open, panel)}<p>All prices include tax. ${LONG}</p>`));

  const paths = passages.map(({ path, text }) => [path.slice(1).join(' > '), text.slice(0, 23)]);
  expect(paths).toEqual([
    ['Shipping to Norway', 'Parcels cost 14 euros. '],
    ['Shipping to Malta', 'Parcels cost 11 euros. '],
    ['', 'All prices include tax.'],
  ]);
});

test('tabs are headings of their panels', async () => {
  const tab = (id: string, title: string) => `<button role="tab" id="${id}">${title}</button>`;
  const tabPanel = (id: string, text: string) =>
    `<div role="tabpanel" aria-labelledby="${id}" hidden><p>${text} ${LONG}</p></div>`;
  const markup = `<div role="tablist">${tab('a', 'Norway')}${tab('b', 'Malta')}</div>${tabPanel('a', '14 euros.')}${tabPanel('b', '11 euros.')}`;

  const { passages } = await read(aMain(markup));

  expect(passages.map(({ path, text }) => [path.at(-1), text.slice(0, 9)])).toEqual([
    ['Norway', '14 euros.'],
    ['Malta', '11 euros.'],
  ]);
});

test('labels of tabs in a row are no headings of what follows all of them', async () => {
  const label = (id: string) => `<input type="radio" name="t" id="${id}"><label for="${id}">${id}</label>`;
  const { passages } = await read(
    aMain(`${label('Norway')}${label('Malta')}<div>14 euros. ${LONG}</div><div>11 euros. ${LONG}</div>`),
  );

  expect(new Set(passages.map(({ path }) => path.join(' > ')))).toEqual(new Set(['Delivery']));
});

test('buttons that do something, menus and fields of forms are no headings', async () => {
  const text = await textOf(
    aMain(`<p>One.</p><button>Copy</button><button aria-haspopup="true" aria-expanded="false">Filter</button><p>Two.</p>
      <form><input type="radio" id="x"><label for="x">Express</label><label class="faq">Name</label></form><p>Three.</p>
      <button class="btn" data-toggle="modal" data-target="#m">Order</button><p>Four.</p>`),
  );

  expect(text).toBe('One.\nTwo.\nThree.\nFour.');
});

test('the glyphs and words of icon fonts are no text', async () => {
  const text = await textOf(
    aMain(`<p class="icon" aria-hidden="true">menu</p><p>\uf0c9 Massages \u{f0001}are booked<i class="material-icons">expand_more</i> at the desk.</p>
      <button class="accordion">Prices <span class="material-symbols-outlined">add</span></button><p id="p" aria-hidden="true">Forty euros.</p>
      <p><mat-icon>local_shipping</mat-icon> By <span class="nav-icon">expand_less</span>ship.</p><h3><button aria-expanded="false">Refunds <span class="fa">+</span></button></h3><p>In ten days.</p>`),
  );

  expect(text).toBe('Massages are booked at the desk.\nPrices\nForty euros.\nBy ship.\nRefunds\nIn ten days.');
});

test('what a site generator or script would fill in is no text, and code stays', async () => {
  const page = await textOf(
    aMain(
      '<p>Open at {{ shop.opening }} nine{% if x %}.{% endif %} <code>{{ name }}</code></p><pre>{% raw %}</pre><p>[gallery ids="1"] Until <%= close %> five {# later #} o’clock [sic].[/gallery]</p>',
    ),
  );
  const file = await textOf(
    aFile(
      [
        "import Tabs from '@theme/Tabs';",
        '# Start {: #start .wide}',
        '{% include note.html %}Open at {{ site.hours | default: "nine" }} nine. {{< figure src="a.png" >}}',
        '',
        ':::tip Parking',
        'Behind <Badge text={1} /> the house. <img src={useBaseUrl("a.png")} alt="a" />',
        ':::',
        '',
        '<Tabs groupId="a">It is free.</Tabs> {/* later */}',
        '',
        'Write `{{ name }}` and',
        '',
        '```jsx',
        '<Tabs a={1} />',
        '```',
      ].join('\n'),
      { name: 'a.mdx' },
    ),
  );

  expect(page).toBe('Open at nine. {{ name }}\n{% raw %}\nUntil five o’clock [sic].');
  expect(file).toBe('Open at nine.\nParking\nBehind the house.\nIt is free.\nWrite {{ name }} and\n<Tabs a={1} />');
});

test('a list of questions that are answered elsewhere is no text, and leads there', async () => {
  const links = ['How do I pay?', 'Where is my parcel?', 'Can I return it?', 'Who delivers?', 'Is it insured?'];
  const list = links.map((text, nth) => `<li><a href="/faq/${nth}">${text}</a></li>`).join('');
  const page = await read(aMain(`<ul>${list}</ul><p>We deliver on weekdays.</p>`));

  expect(page.passages.map(({ text }) => text)).toEqual(['We deliver on weekdays.']);
  expect(page.links).toHaveLength(5);
});

test.each([
  ['in a line', (links: string[]) => `<p>${links.join(' · ')}</p>`],
  ['in a table', (links: string[]) => links.map((link) => `<tr><td>${link}</td></tr>`).join('')],
  ['as cards', (links: string[]) => links.map((link) => `<div><h3>${link}</h3></div>`).join('')],
])('a list of links to answers is no text %s, and the last link is no heading', async (_, list) => {
  const links = ['How do I pay?', 'Where is it?', 'Who delivers?'].map((text, nth) => `<a href="/${nth}">${text}</a>`);
  const { passages } = await read(aMain(`<table>${list(links)}</table><p>We deliver on weekdays.</p>`));

  expect(passages.map(({ path, text }) => [...path, text])).toEqual([['Delivery', 'We deliver on weekdays.']]);
});

test('a table of contents is no text, also beside a link that leads elsewhere', async () => {
  const inside = ['One', 'Two', 'Three', 'Four'].map((name) => `<li><a href="#${name}">${name}</a></li>`).join('');
  const page = await read(aMain(`<ul>${inside}<li><a href="/form">Form A</a></li></ul><p>We deliver on weekdays.</p>`));

  expect(page.passages.map(({ text }) => text)).toEqual(['- Form A\nWe deliver on weekdays.']);
});

test.each([
  ['zh', '我们早上九点开门。'],
  ['ja', '九時に開きます。'],
  ['ko', '아홉 시에 엽니다.'],
  ['el', 'Ανοίγουμε στις εννέα.'],
  ['ar', 'نفتح في التاسعة.'],
  ['fa', 'ساعت نه باز می‌کنیم. پارکینگ'],
  ['he', 'פותחים בתשע.'],
  ['th', 'เปิดเก้าโมง'],
  [null, 'Hotel'],
  ['ru', 'Мы открываемся в девять.'],
  ['uk', 'Ми відкриваємось о дев’ятій. Їжа є.'],
])('a short page without a declared language is in %s by its script', async (language, text) => {
  expect((await read(aPage(`<p>${text} (Hotel)</p>`))).language).toBe(language);
});

test('the script of a short page overrules a language that is never written in it', async () => {
  const languageOf = async (lang: string) => (await read(aPage(`<html lang="${lang}"><p>九点开门。</p>`))).language;

  expect([await languageOf('en-US'), await languageOf('ja')]).toEqual(['zh', 'ja']);
});

test.each([
  '<noscript><meta http-equiv="refresh" content="0; url=/en/"></noscript>',
  '<script>window.location.replace("/en/")</script>',
  "<script>location.href = '/en/';</script>",
])('a page without text leads on as %s says', async (markup) => {
  const { refresh } = await read(aPage(`<head>${markup}</head>`));
  const withText = await read(aPage(`<head><script>location = "/cart"</script></head><p>We are open.</p>`));

  expect([new URL(refresh ?? '').pathname, withText.refresh]).toEqual(['/en/', null]);
});

test('of headings that are long together, the nearest stay', async () => {
  const levels = [2, 3, 4, 5].map((level) => `<h${level}>${level} ${'chapter '.repeat(18)}</h${level}>`);

  const { passages } = await read(aMain(`${levels.join('')}<p>We deliver on weekdays.</p>`));

  expect(passages.map(({ path }) => path.map((heading) => heading.slice(0, 2)))).toEqual([['De', '4 ', '5 ']]);
});
