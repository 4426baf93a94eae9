import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants, getPriority } from 'node:os';
import { createInterface } from 'node:readline';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { openReader, type ReadFailure, type ReadInput, type ReadPage } from '@parley/reading';
import { longTest } from '../../../test/support/size.ts';
import { aDocx, aFile, aPage, aParagraph, aPdf } from './files.ts';

const reader = openReader();
afterAll(() => reader.close());

const isFailure = (read: ReadPage | ReadFailure): read is ReadFailure => 'failed' in read;

const readPage = async (input: ReadInput): Promise<ReadPage> => {
  const read = await reader.read(input);
  if (isFailure(read)) throw new Error(`${read.failed}: ${read.message}`);
  return read;
};

const textOf = ({ passages }: ReadPage): string => passages.map(({ text }) => text).join('\n');
const pathsOf = ({ passages }: ReadPage): string[] => passages.map(({ path }) => path.join(' > '));

const LONG =
  'The reading room on the second floor has forty quiet places with lamps and sockets, and the staff at the desk will find you a locker. ';

const LIBRARY_PAGE = `<!doctype html><html lang="en-GB"><head><meta charset="utf-8"><title>Borrowing – City Library</title>
<meta property="og:site_name" content="City Library"><link rel="canonical" href="/help/borrowing?utm=1#top">
<meta name="robots" content="index, nofollow"></head><body class="has-sidebar nav-open">
<a class="skip-link" href="#main">Skip to content</a>
<div id="cookie-consent"><p>We use cookies to improve your experience. Accept all cookies?</p><button>Accept</button></div>
<header><div class="logo">City Library</div><nav><ul><li><a href="/">Home</a></li><li><a href="/events">Events</a></li>
<li><a href="/help/#faq" role="button">Help</a></li><li><a href="https://shop.example/cards" rel="nofollow">Shop</a></li></ul></nav></header>
<main id="main"><ol class="breadcrumb"><li><a href="/">Home</a></li><li><a href="/help/">Help</a></li></ol>
<h1>Borrowing</h1><p>You may borrow <b>twenty</b> items at a time.<br>Your card must be valid.</p>
<h2 id="loan-periods">Loan periods <a class="headerlink" href="#loan-periods">¶</a></h2>
<table><thead><tr><th>Medium</th><th>Days</th><th>Renewals</th></tr></thead>
<tbody><tr><td>Books</td><td>28</td><td>3</td></tr><tr><td>DVDs</td><td>7</td><td>none</td></tr></tbody></table>
<p>${LONG.repeat(2)}</p>
<section id="late"><h2>Late fees</h2><p>Fees start on the second day:</p><ol><li>Adults pay 0.50 € a day.</li><li>Children pay nothing.</li></ol>
<aside class="note"><p>After four weeks we send an invoice.</p></aside><p>${LONG.repeat(2)}</p></section>
<details id="lost"><summary>I lost a book</summary><p>Pay its price at the desk.</p></details>
<h2>Contact</h2><dl><dt>Phone</dt><dd>555 0100</dd><dt>Desk</dt><dd>Ground floor</dd></dl>
<p>Was this page helpful?</p></main>
<div class="newsletter-signup"><p>Subscribe to our newsletter and never miss an event again.</p></div>
<footer><p>© City Library, all rights reserved. <a href="/imprint">Imprint</a></p></footer>
<script>console.log('never text')</script><noscript>Please enable JavaScript.</noscript></body></html>`;

describe('a web page', () => {
  test('gives title, language, canonical address, links and robots words', async () => {
    const page = await readPage(aPage(LIBRARY_PAGE));

    expect(page).toMatchObject({
      title: 'Borrowing',
      language: 'en-GB',
      canonical: 'https://library.example/help/borrowing?utm=1',
      mayIndex: true,
      mayFollow: false,
    });
    expect(page.links).toEqual([
      'https://library.example/',
      'https://library.example/events',
      'https://library.example/help/',
      'https://library.example/imprint',
    ]);
  });

  test('keeps its text without menus, banners and footers', async () => {
    const text = textOf(await readPage(aPage(LIBRARY_PAGE)));

    expect(text).toContain('You may borrow twenty items at a time.\nYour card must be valid.');
    expect(text).toContain('After four weeks we send an invoice.');
    for (const noise of [
      'cookies',
      'Events',
      'Home',
      'newsletter',
      '©',
      'JavaScript',
      'never text',
      'helpful',
      '¶',
      'Skip',
    ])
      expect(text).not.toContain(noise);
  });

  test('keeps tables, lists and terms as text', async () => {
    const text = textOf(await readPage(aPage(LIBRARY_PAGE)));

    expect(text).toContain('Medium: Books; Days: 28; Renewals: 3\nMedium: DVDs; Days: 7; Renewals: none');
    expect(text).toContain('Fees start on the second day:\n1) Adults pay 0.50 € a day.\n2) Children pay nothing.');
    expect(text).toContain('Phone: 555 0100\nDesk: Ground floor');
  });

  test('has the title of its text, not the site’s', async () => {
    const [site, clean] = await Promise.all([
      readPage(
        aPage(`<title>What is a loan? - City Library</title><div class="menu-bar"><h1>City Library</h1></div>
          <main><h2 id="loan">What is a loan? <button>Copy link</button></h2><p>A book for four weeks<sup><a href="#fn1">[1]</a></sup>.</p></main>`),
      ),
      readPage(aPage(`<title>Help</title><main><h1>§ 5 Fees <a href="#fees">§</a></h1><p>One euro.</p></main>`)),
    ]);

    expect(site.title).toBe('What is a loan?');
    expect(site.passages).toEqual([{ path: ['What is a loan?'], text: 'A book for four weeks.', anchor: 'loan' }]);
    expect(clean.title).toBe('§ 5 Fees');
  });

  test('has paths of headings from its title on, and their anchors', async () => {
    const { passages } = await readPage(aPage(LIBRARY_PAGE));

    expect(passages.map(({ path, anchor }) => [path.join(' > '), anchor])).toEqual([
      ['Borrowing', null],
      ['Borrowing > Loan periods', 'loan-periods'],
      ['Borrowing > Late fees', 'late'],
      ['Borrowing > Late fees > I lost a book', 'lost'],
      ['Borrowing > Contact', null],
    ]);
  });
});

const FAQ = [
  {
    '@type': 'Question',
    name: 'Is there parking?',
    acceptedAnswer: { '@type': 'Answer', text: '<p>Yes, <b>behind</b> the house.</p><p>It is free.</p>' },
  },
  { '@type': 'Question', name: 'Can I eat here?', acceptedAnswer: { text: 'In the café.' } },
];

describe('proposed entries', () => {
  test('come from declared questions, question headings, summaries, terms and buttons', async () => {
    const { proposals } = await readPage(
      aPage(`<html><head><script type="application/ld+json">${JSON.stringify({ '@graph': [{ '@type': 'FAQPage', mainEntity: FAQ }] })}</script>
        <script type="application/ld+json">{ not json</script></head><body><main><h1>Questions</h1>
        <h2 id="park">Is there parking?</h2><p>Yes, behind the house.</p>
        <h2>How to get a card</h2><p>Bring your passport. It takes ten minutes.</p>
        <h2>Opening hours</h2><p>From nine to five.</p>
        <h3><button aria-expanded="false">What does a card cost?</button></h3><div hidden><p>Ten euros a year.</p></div>
        <details id="wifi"><summary>Wireless network</summary><p>Ask for the password at the desk.</p></details>
        <dl><dt>¿Puedo imprimir?</dt><dd>Sí, por diez céntimos.</dd><dt>Fax</dt><dd>No more.</dd></dl></main></body></html>`),
    );

    expect(proposals).toEqual([
      { question: 'Is there parking?', answer: 'Yes, behind the house.\nIt is free.', anchor: 'park' },
      { question: 'Can I eat here?', answer: 'In the café.', anchor: null },
      { question: 'How to get a card', answer: 'Bring your passport. It takes ten minutes.', anchor: null },
      { question: 'What does a card cost?', answer: 'Ten euros a year.', anchor: null },
      { question: 'Wireless network', answer: 'Ask for the password at the desk.', anchor: 'wifi' },
      { question: '¿Puedo imprimir?', answer: 'Sí, por diez céntimos.', anchor: null },
    ]);
  });

  test('are few, and short enough for an entry', async () => {
    const many = Array.from(
      { length: 110 },
      (_, at) => `<h2>Is number ${at} right?</h2><p>${`Number ${at} is right. `.repeat(130)}</p>`,
    );
    const { proposals } = await readPage(
      aPage(`<main><h1>All</h1>${many.join('')}<h2>${'Why? '.repeat(200)}</h2><p>No.</p></main>`),
    );

    expect(proposals).toHaveLength(100);
    expect(Math.max(...proposals.map(({ answer }) => answer.length))).toBeLessThanOrEqual(2000);
    expect(proposals.every(({ answer }) => answer.endsWith('is right.'))).toBe(true);
  });
});

describe('a page without the elements of its parts', () => {
  test('loses menus by their links, and boxes by their names', async () => {
    const page = await readPage(
      aPage(`<html><head><title>Our menu | Blue Door</title></head><body>
        <div><a href="/">Home</a></div><div><a href="/menu">Menu</a></div><div><a href="/table">Book a table</a></div><div><a href="/jobs">Jobs</a></div>
        <div class="restaurant-menu" id="menu"><p>Soup of the day, with bread from our own oven: 6 €</p><p>Fish from the lake with potatoes: 19 €</p></div>
        <div class="sidebar widget"><a href="/one">One more page</a> <a href="/two">Another page</a></div>
        <div class="cookieBanner">This site uses cookies.</div></body></html>`),
    );

    expect(page.title).toBe('Our menu');
    expect(textOf(page)).toBe(
      'Soup of the day, with bread from our own oven: 6 €\nFish from the lake with potatoes: 19 €',
    );
  });

  test('is read if tables arrange it', async () => {
    const page = await readPage(
      aPage(`<table><tr><td><a href="/">Start</a><br><br><a href="/a">Prices</a></td><td><h2>Camping</h2><p>${LONG}</p>
        <table><tr><td><b>Tent</b></td><td><b>Price</b></td></tr><tr><td>small</td><td>12 €</td></tr></table></td></tr></table>`),
    );

    expect(textOf(page)).toContain('Tent: small; Price: 12 €');
    expect(pathsOf(page)).toContain('help > Camping');
  });

  test('with links alone leads further and has nothing to know', async () => {
    const page = await readPage(
      aPage(
        '<body><nav><a href="one">One</a><a href="two#x">Two</a><a href="mailto:a@b.example">Mail</a></nav></body>',
      ),
    );

    expect(page.links).toEqual(['https://library.example/help/one', 'https://library.example/help/two']);
    expect(page.passages).toEqual([]);
  });
});

const GERMAN =
  'Die Bücherei hat täglich geöffnet, außer an Feiertagen. Für Kinder ist die Ausleihe natürlich kostenlos.';
const RUSSIAN = 'Библиотека открыта каждый день с девяти часов утра до семи часов вечера, кроме праздников.';
const JAPANESE = '図書館は毎日午前九時から午後七時まで開いています。カードは無料で作れます。';

const asUtf16 = (text: string): Buffer => Buffer.from(text, 'utf16le');

describe('letters', () => {
  test.each([
    ['a mark at the start', Buffer.concat([Buffer.from([0xff, 0xfe]), asUtf16(GERMAN)]), 'text/plain', GERMAN],
    ['UTF-16 without a mark', asUtf16(GERMAN), 'text/plain', GERMAN],
    ['UTF-16 with the high byte first', asUtf16(GERMAN).swap16(), 'text/plain', GERMAN],
    ['the header', Buffer.from(GERMAN, 'latin1'), 'text/plain; charset=iso-8859-1', GERMAN],
    ['no word at all', Buffer.from(GERMAN, 'latin1'), null, GERMAN],
    ['a wrong header', Buffer.from(RUSSIAN), 'text/plain; charset=windows-1252', RUSSIAN],
    ['a header in KOI8-R', Buffer.from(koi8(RUSSIAN)), 'text/plain; charset=koi8-r', RUSSIAN],
  ])('are found by %s', async (_, bytes, contentType, expected) => {
    expect(textOf(await readPage(aFile(bytes, { contentType, name: 'a.txt' })))).toBe(expected);
  });

  test('are found by the page’s own word', async () => {
    const head =
      '<html><head><meta http-equiv="Content-Type" content="text/html; charset=windows-1252"></head><body><p>';
    const page = await readPage(
      aPage(
        Buffer.concat([
          Buffer.from(head),
          Buffer.from(`${GERMAN} „Ja“`.replace('„', '\u0084').replace('“', '\u0093'), 'latin1'),
        ]),
        { contentType: 'text/html' },
      ),
    );

    expect(textOf(page)).toBe(`${GERMAN} „Ja“`);
    expect(page.language).toBe('de');
  });

  test.each([
    ['ja', JAPANESE],
    ['ru', RUSSIAN],
    ['de', GERMAN],
  ])('in %s tell the language, whatever the template says', async (language, text) => {
    const page = await readPage(aPage(`<html lang="en"><body><p>${text.repeat(3)}</p></body></html>`));
    expect(page.language).toBe(language);
  });
});

/** Node decodes KOI8-R and does not write it. */
function koi8(text: string): number[] {
  const decoder = new TextDecoder('koi8-r');
  const bytes = new Map(Array.from({ length: 256 }, (_, byte) => [decoder.decode(Uint8Array.of(byte)), byte]));
  return Array.from(text, (letter) => bytes.get(letter) ?? 63);
}

describe('passages', () => {
  const sentences = (count: number, words = 12): string =>
    Array.from(
      { length: count },
      (_, at) => `Rule ${at} says that ${Array.from({ length: words }, (_, word) => `word${word}`).join(' ')}.`,
    ).join(' ');

  test('have 200 to 900 characters, end with a sentence, and leave nothing out', async () => {
    const text = sentences(200);
    const page = await readPage(aFile(`# Rules\n\n${text}\n`, { name: 'rules.md' }));

    expect(page.passages.every(({ text }) => text.length >= 200 && text.length <= 900 && text.endsWith('.'))).toBe(
      true,
    );
    expect(page.passages.map(({ text }) => text).join(' ')).toBe(text);
  });

  test('do not end after an abbreviation or the number of an item', async () => {
    const text = Array.from(
      { length: 60 },
      (_, at) => `Call Dr. Meier, e.g. on Mon. or at no. ${at}, if you need Mr. Smith in St. Gallen.`,
    ).join(' ');
    const page = await readPage(aFile(text, { name: 'a.txt' }));
    expect(page.passages.every(({ text }) => text.startsWith('Call') && text.endsWith('Gallen.'))).toBe(true);
  });

  test.each([
    ['Thai', 'ห้องสมุดเปิดทุกวันตั้งแต่เก้าโมงเช้าถึงหนึ่งทุ่มยกเว้นวันหยุดนักขัตฤกษ์'.repeat(60)],
    ['Chinese', '图书馆每天从早上九点开放到晚上七点节假日除外'.repeat(100)],
    ['emoji', 'wunderbarerweise👩‍👩‍👧‍👦'.repeat(400)],
    ['one word', 'x'.repeat(5000)],
  ])('of %s without an end are cut between words or letters', async (_, text) => {
    const page = await readPage(aFile(`Start: ${text}`, { name: 'a.txt' }));
    expect(page.passages.length).toBeGreaterThan(1);
    expect(page.passages.every(({ text }) => text.length <= 900 && text.isWellFormed())).toBe(true);
  });

  test('of slight sections are joined with their headings, but a question keeps its own', async () => {
    const page = await readPage(
      aFile(
        '# Desk\n\n## Phone\n\n555 0100\n\n## Room\n\nB 12\n\n## Where is it?\n\nIn the hall.\n\n## Who is there?\n\nAnna.',
        { name: 'a.md' },
      ),
    );
    expect(page.passages).toEqual([
      { path: ['Desk'], text: 'Phone\n555 0100\nRoom\nB 12', anchor: null },
      { path: ['Desk', 'Where is it?'], text: 'In the hall.', anchor: null },
      { path: ['Desk', 'Who is there?'], text: 'Anna.', anchor: null },
    ]);
  });

  test('that are equal are there once', async () => {
    const page = await readPage(aPage(`<main><h1>A</h1>${`<h2>B</h2><p>${LONG}</p>`.repeat(5)}</main>`));
    expect(page.passages).toHaveLength(1);
  });

  test('are the same each time', async () => {
    const [one, other] = [await readPage(aPage(LIBRARY_PAGE)), await readPage(aPage(LIBRARY_PAGE))];
    expect(one).toEqual(other);
  });
});

describe('a file', () => {
  test('of Markdown has headings, lists, tables, code and its own title', async () => {
    const page = await readPage(
      aFile(
        `---\ntitle: "The handbook"\nlang: en\n---\n# Start {#start}\n\nRead [this](https://library.example/a#b) first.\n\n## Steps\n\n1. Open\n2. Close\n\n` +
          '| Key | Does |\n|---|---|\n| F1 | helps |\n\n```sh\nrun --all\n  stop\n```\n\n<details><summary>More</summary>\n\nHidden text.\n\n</details>\n',
        { name: 'handbook.md' },
      ),
    );

    expect(page.title).toBe('The handbook');
    expect(page.links).toEqual(['https://library.example/a']);
    expect(page.passages).toEqual([
      {
        path: ['The handbook', 'Start'],
        text: 'Read this first.\nSteps\n1) Open\n2) Close\nKey: F1; Does: helps\nrun --all\n  stop',
        anchor: 'start',
      },
      { path: ['The handbook', 'Start', 'Steps', 'More'], text: 'Hidden text.', anchor: null },
    ]);
  });

  test('of plain text has paragraphs, underlined headings and items', async () => {
    const page = await readPage(
      aFile(
        'House rules\n===========\n\nBe quiet after ten\nin the evening.\n\nBins\n----\n\n- Paper on Monday.\n- Glass on Fri-\n',
        { name: 'house_rules.txt' },
      ),
    );

    expect(page.title).toBe('House rules');
    expect(page.passages).toEqual([
      {
        path: ['House rules'],
        text: 'Be quiet after ten in the evening.\nBins\n- Paper on Monday.\n- Glass on Fri-',
        anchor: null,
      },
    ]);
  });

  test('of PDF has headings by size, whole paragraphs and rows, and no running titles', async () => {
    const page = (number: number, lines: { text: string; size?: number; x?: number; y: number }[]) => [
      { text: 'Allotment rules 2026', size: 8, y: 810 },
      ...lines,
      { text: `Page ${number} of 3`, size: 8, y: 30 },
    ];
    const read = await readPage(
      aFile(
        aPdf([
          page(1, [
            { text: 'Allotment rules', size: 24, y: 760 },
            { text: 'Watering', size: 16, y: 700 },
            { text: 'Water only in the morning, because the pump is needed by ev-', y: 680 },
            { text: 'erybody in the evening. The well belongs to all of', y: 666 },
          ]),
          page(2, [
            { text: 'us.', y: 770 },
            { text: 'A second paragraph stands apart.', y: 730 },
            { text: 'Fees', size: 16, y: 690 },
            { text: 'Plot', y: 670 },
            { text: 'Price', x: 300, y: 670 },
            { text: 'small', y: 656 },
            { text: '40 euros', x: 300, y: 656 },
          ]),
          page(3, [
            { text: 'How do I leave the club?', size: 16, y: 760 },
            { text: 'Write a letter before October.', y: 740 },
          ]),
        ]),
        { name: 'rules.pdf', url: 'https://garden.example/rules.pdf' },
      ),
    );

    expect(read.title).toBe('Allotment rules');
    expect(read.passages).toEqual([
      {
        path: ['Allotment rules', 'Watering'],
        text: 'Water only in the morning, because the pump is needed by everybody in the evening. The well belongs to all of us.\nA second paragraph stands apart.',
        anchor: 'page=1',
      },
      { path: ['Allotment rules', 'Fees'], text: 'Plot | Price\nsmall | 40 euros', anchor: 'page=2' },
      {
        path: ['Allotment rules', 'How do I leave the club?'],
        text: 'Write a letter before October.',
        anchor: 'page=3',
      },
    ]);
    expect(read.proposals).toEqual([
      { question: 'How do I leave the club?', answer: 'Write a letter before October.', anchor: 'page=3' },
    ]);
  });

  test('of DOCX has its title, headings and tables', async () => {
    const cell = (text: string): string => `<w:tc>${aParagraph(text)}</w:tc>`;
    const read = await readPage(
      aFile(
        aDocx(
          aParagraph('Staff handbook', 'Title') +
            aParagraph('Holidays', 'Heading1') +
            aParagraph('Everybody has thirty days off.') +
            aParagraph('Sick leave', 'Heading2') +
            aParagraph('Call before nine.') +
            `<w:tbl><w:tr>${cell('Who')}${cell('Phone')}</w:tr><w:tr>${cell('Anna')}${cell('11')}</w:tr></w:tbl>`,
        ),
        { name: 'handbook.docx' },
      ),
    );

    expect(read.title).toBe('Staff handbook');
    expect(read.passages).toEqual([
      {
        path: ['Staff handbook', 'Holidays'],
        text: 'Everybody has thirty days off.\nSick leave\nCall before nine.\nWho: Phone\nAnna: 11',
        anchor: null,
      },
    ]);
  });

  test('is what its bytes say, not its name or type', async () => {
    const pdf = aPdf([[{ text: 'A PDF by its bytes.', y: 700 }]]);
    expect(textOf(await readPage(aFile(pdf, { contentType: 'text/html', name: 'a.txt' })))).toBe('A PDF by its bytes.');
    expect(
      textOf(await readPage(aFile('<!DOCTYPE html><p>A page.</p>', { contentType: 'application/pdf', name: 'a.pdf' }))),
    ).toBe('A page.');
  });
});

const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

describe('the reader', () => {
  test('reads documents in the order they came', async () => {
    const ended: number[] = [];
    await Promise.all([1, 2, 3].map((at) => reader.read(aFile(`Text ${at}.`)).then(() => ended.push(at))));
    expect(ended).toEqual([1, 2, 3]);
  });

  test('ends a document that is no longer wanted, and reads the next', async () => {
    const abort = new AbortController();
    const reading = reader.read(aFile('> '.repeat(2_000_000), { name: 'slow.md' }), abort.signal);
    abort.abort(new Error('not wanted'));

    await expect(reading).rejects.toThrow('not wanted');
    expect(textOf(await readPage(aFile('Next one.')))).toBe('Next one.');
  });

  test('reads at a low priority, and leaves no process behind when its own process is killed', async () => {
    const parent = spawn(process.execPath, [new URL('./orphan.ts', import.meta.url).pathname], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const lines = createInterface(parent.stdout)[Symbol.asyncIterator]();
    const child = Number((await lines.next()).value);
    onTestFinished(() => void (isAlive(child) && process.kill(child, 'SIGKILL')));
    expect(isAlive(child)).toBe(true);
    await expect.poll(() => getPriority(child), { timeout: 20_000 }).toBe(constants.priority.PRIORITY_LOW);

    parent.kill('SIGKILL');
    await once(parent, 'exit');

    await expect.poll(() => isAlive(child), { timeout: 20_000 }).toBe(false);
  });

  longTest('reads after its process was idle, and nothing after it is closed', async () => {
    const own = openReader({ idleMs: 1 });
    await own.read(aFile('First.'));
    await expect(own.read(aFile('Second.'))).resolves.toMatchObject({ passages: [{ text: 'Second.' }] });
    await own.close();
    await expect(own.read(aFile('Third.'))).rejects.toThrow('closed');
  });
});
