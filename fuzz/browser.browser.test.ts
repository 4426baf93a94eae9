import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { useBrowser } from '../test/support/browser.ts';
import { aTurn, anEntry, request } from '../test/support/builders.ts';
import { PAGES } from '../test/support/dashboard-pages.ts';
import { visit } from '../test/support/dashboard.ts';
import { eventually } from '../test/support/eventually.ts';
import { anOperator } from '../test/support/operator-client.ts';
import { openReceiver, type Receiver } from '../test/kit/receiver.ts';
import { type Scene, setScene } from '../test/support/scene.ts';
import { addPages, addPassages, addProposals } from '../test/support/sources.ts';
import { useStack } from '../test/support/stack.ts';
import { aVisitor, SITE } from '../test/support/visitor.ts';
import { often, record } from '../test/kit/fuzz-part.ts';
import { PAYLOADS as ALL, textsOf } from './payloads.ts';

// Payloads are stored through every door that takes a text of their length, and every page is opened. Whoever opens a page
// is told of violations of its policy, requests to other hosts and errors (test/support/page.ts).

const stack = useStack();
const browser = useBrowser();
let scene: Scene;
let receiver: Receiver;
beforeAll(async () => {
  const body = PAYLOADS.join('\n');
  const headers = { 'Content-Type': 'text/html', 'X-Told': (PAYLOADS[0] ?? '').slice(0, 200) };
  receiver = await openReceiver({ respond: () => ({ status: 500, headers, body: `<html>${body}` }) });
  scene = await setScene(stack);
});
afterAll(async () => {
  await scene.close();
  await receiver.close();
});

/** Neighbours in the list are of one kind, so a part of it has some of each. */
const PAYLOADS = often({ short: ALL.filter((_, nth) => nth % 7 === 0), whole: ALL });

/** A part of most payloads. */
const SHOWN = 'window.ran';

/** Lines that a field of one line takes, of so many characters. */
const linesOf = (most: number): string[] =>
  PAYLOADS.filter((one) => one.length <= most && !/\p{Cc}/u.test(one) && one.trim() === one);

/** Every page has the name of its assistant, so that it must not look like what the page itself shows. */
const isQuiet = (payload: string): boolean => !payload.includes(SHOWN);

/** A part of all, another in each round, so that all have been there after the last one. */
const partOf = (all: string[], most: number, round: number): string[] =>
  all
    .slice((round * most) % all.length)
    .concat(all)
    .slice(0, Math.min(most, all.length));

/** Instructions are the longest texts. Without enough payloads for several, each begins at another one. */
const instructionsOf = (nth: number): string | undefined =>
  textsOf(PAYLOADS, 7_900)[nth] ?? textsOf(PAYLOADS.slice(nth), 7_900)[0];

/** Stores payloads through all doors of two assistants. Returns the conversation that has most of them. */
const store = async (round: number): Promise<string> => {
  const { assistantId, draftedId, setId } = scene;
  const { assistants, endpoints, mongo, sources } = stack.service;
  const owner = await anOperator(stack);
  const put = async (method: string, path: string, body: object) => {
    const { status, body: told } = await owner.call(method, path, body);
    expect([method, path, status < 300 ? 'well' : JSON.stringify(told)]).toEqual([method, path, 'well']);
  };
  const post = (path: string, body: object) => put('POST', path, body);
  const [tags, names, labels] = [linesOf(50), linesOf(100), linesOf(80)];
  const [key = '', token = '', set = '', title = ''] = partOf(names, 4, round);
  const [name = ''] = partOf(names.filter(isQuiet), 1, round);
  const at = `/assistants/${assistantId}`;

  await endpoints.addEndpoint(assistantId, { url: `${receiver.url}/${encodeURIComponent(PAYLOADS[round] ?? '')}` });
  await put('PATCH', at, {
    name,
    instructions: instructionsOf(0),
    holdingText: textsOf(PAYLOADS, 900)[round],
  });
  await assistants.setChannel(assistantId, { connected: true, token: null });
  const [greeting = ''] = textsOf(PAYLOADS.slice(round * 10), 500);
  const web = { title: partOf(linesOf(60), 1, round)[0] ?? '', greeting, starters: partOf(labels, 4, round) };
  await assistants.setWeb(assistantId, { enabled: true, origins: [SITE], ...web });
  const answers = textsOf(PAYLOADS, 3_900);
  const questions = textsOf(PAYLOADS, 490);
  const entries = answers.map((answer, nth) =>
    anEntry({
      question: nth === 0 ? 'Which payload?' : `${nth} ${questions[nth]}`.slice(0, 500),
      answer,
      variants: partOf(questions, 10, nth),
      tags: partOf(tags, 10, nth + round),
      actions: partOf(labels, 5, nth + round).map((label) => ({ label, type: 'reply' as const, payload: label })),
    }),
  );
  await assistants.addKnowledge(assistantId, entries);
  await put('PUT', `${at}/tags`, { tags: partOf(tags, 99, round).map((tag) => ({ tag, color: null })) });
  for (const [nth, content] of textsOf(PAYLOADS, 3_900).entries())
    await post(`${at}/canned-replies`, { title: labels[nth + round] ?? 'none', content });
  await post(`${at}/question-sets`, { name: set });
  for (const question of textsOf(PAYLOADS, 1_900))
    await post(`${at}/question-sets/${setId}/cases`, {
      question,
      expected: { kind: 'text', text: question.slice(0, 400) },
    });
  await post('/tokens', { name: token, scope: 'read' });
  const drafted = `/assistants/${draftedId}`;
  await put('PATCH', drafted, { instructions: instructionsOf(1) });
  await post(`${drafted}/draft/publish`, { name: title, note: textsOf(PAYLOADS, 1_900)[round], confirm: true });
  await put('PATCH', drafted, { instructions: instructionsOf(2) });

  const source = await sources.add(assistantId, { kind: 'page', url: 'http://127.0.0.1:9/' });
  await put('PATCH', `${at}/sources/${scene.sourceId}`, { name: partOf(names, 1, round)[0] });
  for (const one of [source, { assistantId, sourceId: scene.sourceId }]) {
    const url = (nth: number) => `http://127.0.0.1:9/${nth}-${round}#${encodeURIComponent(PAYLOADS[nth] ?? '')}`;
    await addPages(
      stack,
      one,
      PAYLOADS.map((text, nth) => ({ url: url(nth), title: text, run: 2 })),
    );
    await addPassages(stack, one, [...textsOf(PAYLOADS, 800)]);
    await addProposals(
      stack,
      one,
      textsOf(PAYLOADS, 490).map((question) => ({ question, answer: question })),
    );
  }
  const at0 = new Date();
  const missed = textsOf(PAYLOADS, 1_900).map((question, nth) => {
    const examples = [{ conversationId: scene.escalated, question, at: at0 }];
    const group = {
      _id: `${round}-${nth}`,
      assistantId,
      conversationId: scene.escalated,
      question,
      examples,
      count: 99 - nth,
    };
    const said = { conversationId: scene.escalated, content: question, at: at0 };
    return {
      ...group,
      answer: said,
      language: 'en',
      words: [],
      vector: null,
      model: null,
      state: 'open',
      firstAt: at0,
      lastAt: at0,
    };
  });
  await mongo.collection('misses').insertMany(missed as never);

  const { apiKey: bearer } = await assistants.createApiKey({ assistantId, name: key, limitPerMinute: 1_000_000 });
  const session_id = `${round} ${PAYLOADS[round]}`.slice(0, 200);
  const ids = [];
  for (const message of [...textsOf(PAYLOADS, 7_900), 'Which payload?']) {
    const { body } = await request(`${stack.url}/api/v1/chat`, { bearer, body: aTurn({ session_id, message }) });
    ids.push(body.conversationId);
  }
  await request(`${stack.url}/api/v1/channels/webhook/${assistantId}`, {
    body: aTurn({ session_id: `channel ${session_id}`.slice(0, 200) }),
  });
  const conversation = `/conversations/${ids[0]}`;
  const [reason = ''] = textsOf(PAYLOADS.slice(round * 10), 490);
  await request(`${stack.url}/api/v1${conversation}/escalate`, { bearer, body: { reason } });
  const attributes = Object.fromEntries(partOf(labels, 10, round).map((value, nth) => [`n${nth}`, value]));
  await request(`${stack.url}/api/v1${conversation}/attributes`, { bearer, body: attributes });
  for (const tag of partOf(tags, 10, round)) await post(`${conversation}/tags`, { tag, color: null });
  for (const content of textsOf(PAYLOADS, 3_900)) {
    await post(`${conversation}/notes`, { content });
    await post(`${conversation}/replies`, { content });
  }
  await eventually(async () => {
    const failed = await mongo
      .collection('deliveries')
      .countDocuments({ assistantId, outcome: 'rejected', event: 'tag.added' });
    expect(failed).toBeGreaterThan(round);
  });
  return ids[0] ?? '';
};

/** What payloads have done to a page, which of its links are dangerous, and whether the page shows any payload. */
const LOOK = `new Promise((done) => setTimeout(done, 50)).then(() => {
  const all = (root) => [...root.querySelectorAll('*')].flatMap((one) => [one, ...(one.shadowRoot ? all(one.shadowRoot) : [])]);
  const elements = all(document);
  const htmlOf = (some) => some.map((one) => one.outerHTML.slice(0, 200));
  const isDangerous = ({ protocol, target, rel }) =>
    !/^(https?|mailto|tel):$/.test(protocol) || (target === '_blank' && !/noopener|noreferrer/.test(rel));
  const texts = elements.map((one) => (one.value ?? '') + (one.shadowRoot?.textContent ?? '') + (one.innerText ?? ''));
  return {
    ran: window.ran ?? null,
    style: getComputedStyle(document.documentElement).getPropertyValue('--zq'),
    elements: htmlOf(elements.filter((one) => one.matches('[zq], base, iframe, object, embed, plaintext'))),
    links: htmlOf(elements.filter((one) => one.matches('a[href]') && isDangerous(one))),
    isShown: texts.some((text) => text.includes('${SHOWN}')),
  };
})`;
type Seen = { ran: unknown; style: string; elements: string[]; links: string[]; isShown: boolean };

const look = async (page: Page, name: string): Promise<boolean> => {
  const { isShown, ...done } = await page.evaluate<Seen>(LOOK);
  expect([name, done]).toEqual([name, { ran: null, style: '', elements: [], links: [] }]);
  return isShown;
};

/** Pages that show payloads without a click. A short form opens those with code of their own for links, differences or lists. */
const SHOWING = [
  'audit',
  'channel',
  'deliveries',
  'delivery-rejected',
  'evaluate',
  'evaluate-set',
  'inbox',
  'inbox-conversation',
  'keys',
  'knowledge',
  'operators',
  'overview',
  'settings',
  'source',
  'sources',
  'versions',
  'webhooks',
];

const rounds = often({ short: 1, whole: 5 });
const SHORT = [
  'audit',
  'delivery-rejected',
  'inbox',
  'inbox-conversation',
  'knowledge',
  'settings',
  'source',
  'versions',
  'webhooks',
];
const shows = often({ short: SHORT, whole: SHOWING });
const pages = PAGES.filter(({ name }) => often({ short: SHORT.includes(name), whole: true }));
test('no text that is stored runs, loads, styles or becomes an element on any page', async () => {
  browser.expectComplaint(/status of 404/); // a page that does not exist
  const page = await browser.open(stack.url, { cookie: scene.cookie });
  let opened = 0;
  const showing = new Set<string>();
  for (let round = 0; round < rounds; round += 1) {
    const conversation = await store(round);
    const { deliveryId } = await eventually(async () => {
      const row = await stack.service.mongo
        .collection('deliveries')
        .findOne({ outcome: 'rejected', event: 'message.received' });
      return { deliveryId: String(row?._id) };
    });
    const shown: Scene = { ...scene, escalated: conversation, rejected: deliveryId };
    // Dialogs once: later, payloads have the names of buttons.
    const withDialogs = rounds > 1 && round === 0;
    for (const one of pages.filter(({ after }) => withDialogs || !after)) {
      await visit(page, one.path(shown));
      await one.after?.(page);
      if (await look(page, one.name)) showing.add(one.name);
      opened += 1;
    }
  }
  expect(opened).toBeGreaterThanOrEqual(shows.length);
  expect([...showing]).toEqual(expect.arrayContaining(shows));
  record('browser', { payloads: PAYLOADS.length, pages: opened, showing: showing.size });
});

test('nor in the widget', async () => {
  const visitor = await aVisitor(stack, scene.assistantId);
  for (const text of textsOf(PAYLOADS, 7_900)) await visitor.say(text);
  const page = await browser.open(stack.url);
  await page.goto(`/w/${scene.assistantId}`);
  await page.getByRole('textbox').fill(textsOf(PAYLOADS, 3_900)[0] ?? '');
  await page.keyboard.press('Enter');
  await page.getByRole('textbox').fill('Which payload?');
  await page.keyboard.press('Enter');
  await page.locator('.item.assistant.done', { hasText: SHOWN }).first().waitFor();

  expect(await look(page, 'widget')).toBe(true);
});

test('where they become markup, they run, load, style and are elements', async () => {
  browser.expectComplaint(/./);
  const page = await browser.open(stack.url);
  const seen: Seen[] = [];
  const markup = ALL.filter((one) => one.startsWith('<') && !one.includes('refresh'));
  for (const payload of markup.filter((one, nth) => nth % 3 === 0 || /^<(?:style|a|img)/.test(one))) {
    await page.setContent(`<!doctype html><main>${payload}</main>`);
    seen.push(await page.evaluate<Seen>(LOOK));
  }

  expect(seen.filter(({ ran }) => ran === 1).length).toBeGreaterThan(5);
  expect(seen.filter(({ elements }) => elements.length > 0).length).toBeGreaterThan(20);
  expect(seen.filter(({ style }) => style === '1').length).toBeGreaterThan(0);
  expect(seen.filter(({ links }) => links.length > 0).length).toBeGreaterThan(1);
  expect(browser.complaints().some((one) => one.includes('asked outside: http://evil.example'))).toBe(true);
});
