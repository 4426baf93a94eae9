import { setImmediate as nextTick } from 'node:timers/promises';
import * as fc from 'fast-check';
import { expect, test, vi } from 'vitest';
import {
  type AssistantEngine,
  type AssistantProfile,
  type EngineEntry,
  type EngineReply,
  type HistoryMessage,
  holdingText,
  otherLanguageText,
  text,
  TEXT_LANGUAGES,
  type TurnContext,
} from '../../src/replies/engines/engine.ts';
import { createRetrievalEngine } from '../../src/replies/engines/retrieval.ts';
import { createSharedMemory } from '../../src/platform/process/lru.ts';
import { sized } from '../support/size.ts';
import { collect } from '../support/heap.ts';

const engine = createRetrievalEngine();

const anEntry = (entryId: string, question: string, overrides: Partial<EngineEntry> = {}): EngineEntry => ({
  entryId,
  question,
  variants: [],
  answer: `The answer to ${entryId}.`,
  language: 'en',
  actions: [],
  tags: [],
  ...overrides,
});

const HOURS = anEntry('hours', 'What are your opening hours?', {
  answer: 'Monday to Friday 9 to 7. Closed on Sundays.',
});
const KNOWLEDGE = [
  HOURS,
  anEntry('shipping', 'How much does shipping cost?', {
    actions: [{ label: 'Prices', type: 'link', payload: 'https://example.com/shipping' }],
  }),
  anEntry('abroad', 'Do you ship to other countries?', { answer: 'Yes, to Switzerland and Norway.' }),
  anEntry('returns', 'How do I return an item?'),
  anEntry('password', 'I forgot my password'),
  anEntry('parking', 'Is there parking?'),
  anEntry('hours-de', 'Wann haben Sie geöffnet?', { language: 'de', answer: 'Montag bis Freitag von 9 bis 19 Uhr.' }),
];

let versions = 0;
const anAssistant = (overrides: Partial<AssistantProfile> = {}): AssistantProfile => ({
  assistantId: 'shop',
  version: String((versions += 1)),
  name: 'Shop',
  instructions: '',
  languages: [],
  threshold: null,
  knowledge: KNOWLEDGE,
  ...overrides,
});
const SHOP = anAssistant();

const ask = (
  message: string,
  { history = [], ...overrides }: Omit<Partial<TurnContext>, 'history'> & { history?: HistoryMessage[] } = {},
): Promise<EngineReply> =>
  engine.reply({
    assistant: SHOP,
    message,
    language: 'en',
    history: async () => history,
    signal: new AbortController().signal,
    ...overrides,
  });

const said = (reply: EngineReply): HistoryMessage[] => [{ role: 'assistant', content: reply.text, why: reply.why }];

test("a question is answered with its entry and the entry's actions", async () => {
  const reply = await ask('how much does shipping cost??');

  expect(reply).toMatchObject({ text: 'The answer to shipping.', confidence: 1, low: false, language: 'en' });
  expect(reply.suggestedActions).toEqual([{ label: 'Prices', type: 'link', payload: 'https://example.com/shipping' }]);
});

test.each([
  ['opnening hours', 'hours'],
  ['WHEN ARE YOU OPEN', 'hours'],
  ['what are the delivery charges', 'shipping'],
  ['i want to send something back', 'returns'],
  ['reset my pasword', 'password'],
])('typos and other words find the entry: %s', async (message, entryId) => {
  const reply = await ask(message);

  expect(reply.low).toBe(false);
  expect(reply.why.hits).toEqual(expect.arrayContaining([expect.objectContaining({ entryId })]));
});

test('an entry that has no vector yet is found by its words', async () => {
  const others = KNOWLEDGE.filter(({ entryId }) => entryId !== 'returns');
  const spread = { count: others.length, mean: 0.8, deviation: 0.02 };
  const entries = others.map(({ entryId }) => ({ entryId, question: 0.8, answer: 0.8 }));
  const semanticSearch = async () => ({ entries, question: spread, answer: spread });

  const reply = await ask('i want to send something back', { semanticSearch });

  expect(reply).toMatchObject({ text: 'The answer to returns.', low: false, why: { by: 'words only' } });
});

test("an entry in the visitor's language is preferred", async () => {
  const reply = await ask('wann habt ihr geöffnet?', { language: 'de' });

  expect(reply).toMatchObject({ text: 'Montag bis Freitag von 9 bis 19 Uhr.', language: 'de' });
});

test("an answer in another language says so openly, in the visitor's", async () => {
  const reply = await ask('Combien coûte la livraison ?', { language: 'fr' });

  expect(reply).toMatchObject({ language: 'en', low: false });
  expect(reply.text).toBe("Je n'ai cette réponse que dans une autre langue (anglais) :\nThe answer to shipping.");
});

test('a visitor whose language was wrongly remembered is not told that the answer is in another one', async () => {
  const reply = await ask('what are your opening hours', { language: 'fr' });

  expect(reply.text).toBe(HOURS.answer);
});

test('"and on Sundays?" continues from the previous answer, also after small talk', async () => {
  const first = await ask('when are you open?');
  const history: HistoryMessage[] = [...said(first), { role: 'user', content: 'thanks' }, ...said(await ask('thanks'))];

  const reply = await ask('and on Sundays?', { history });

  expect(reply).toMatchObject({ text: HOURS.answer, low: false });
});

test('"and to Norway?" finds the entry of the new word', async () => {
  const first = await ask('How much does shipping cost?');

  const reply = await ask('and to Norway?', { history: said(first) });

  expect(reply.text).toBe('Yes, to Switzerland and Norway.');
});

test('for two similarly likely entries the visitor is asked back, and a yes chooses the first', async () => {
  const assistant = anAssistant({
    knowledge: [
      anEntry('card', 'Can I pay by card in the shop?'),
      anEntry('cash', 'Can I pay by cash in the shop?'),
      ...KNOWLEDGE,
    ],
  });

  const reply = await ask('pay in the shop', { assistant });
  const next = await ask('yes', { assistant, history: said(reply) });

  expect(reply).toMatchObject({ text: text('en', 'askBack'), low: false });
  expect(reply.suggestedActions.map(({ type, payload }) => [type, payload])).toEqual([
    ['reply', 'Can I pay by card in the shop?'],
    ['reply', 'Can I pay by cash in the shop?'],
  ]);
  expect(next.text).toBe('The answer to card.');
});

test('an unknown topic is not answered: a person is offered, and a yes hands off', async () => {
  const reply = await ask('who won the football match last night');
  const next = await ask('yes please', { history: said(reply) });

  expect(reply).toMatchObject({ low: true, text: text('en', 'unsure') });
  expect(reply.suggestedActions).toEqual([{ label: 'Talk to a person', type: 'escalate', payload: 'user_requested' }]);
  expect(next.escalate).toBe('user_requested');
});

test('the threshold of the assistant decides how sure an answer must be', async () => {
  const strict = await ask('delivery charges', { assistant: anAssistant({ threshold: 0.99 }) });
  const bold = await ask('delivery charges', { assistant: anAssistant({ threshold: 0.2 }) });

  expect(strict.why).toMatchObject({ kind: 'hedge', threshold: 0.99 });
  expect(bold.why).toMatchObject({ kind: 'answer', threshold: 0.2 });
});

test('an assistant without knowledge is friendly and never unsure', async () => {
  const assistant = anAssistant({ knowledge: [] });

  const reply = await ask('what are your opening hours?', { assistant });
  const contact = await ask('call me: +49 171 2345678', { assistant });

  expect(reply).toMatchObject({ low: false, text: text('en', 'noKnowledge') });
  expect(contact).toMatchObject({ low: false, text: text('en', 'contactNoted') });
});

test.each([
  ['hello!', 'en', 'greeting'],
  ['vielen dank', 'de', 'thanks'],
  ['adiós', 'es', 'goodbye'],
  ['non merci', 'fr', 'no'],
  ['謝謝', 'zh-TW', 'thanks'],
  ['はい、お願いします', 'ja', 'yes'],
  ['ok thanks, bye', 'en', 'goodbye'],
] as const)('small talk is answered in kind: %s', async (message, language, key) => {
  const reply = await ask(message, { language });

  expect(reply).toMatchObject({ text: text(language, key), language, low: false });
});

test('a greeting before a question does not hide the question', async () => {
  const reply = await ask('Hi there, is there parking?');

  expect(reply.text).toBe('The answer to parking.');
});

test('contact details are acknowledged, and an order number is not a phone number', async () => {
  const mail = await ask('my e-mail is jane.doe+shop@example.co.uk');
  const phone = await ask('You reach me at (030) 555 01 20');
  const order = await ask('1234567');

  expect(mail.why.kind).toBe('contact');
  expect(phone.why.kind).toBe('contact');
  expect(order.why.kind).toBe('unsure');
});

test.each([
  'My email is eva@example.org. Is there parking?',
  'Is there parking? You reach me at (030) 555 01 20, thanks',
  'I am eva@example.org, is there parking?',
  'eva@example.org - is there parking',
])('contact details are noted, and the question beside them is answered: %s', async (message) => {
  const reply = await ask(message);

  expect(reply.text).toBe(`${text('en', 'contactNoted')}\nThe answer to parking.`);
});

test('a question beside contact details that has no answer is unsure, and a tag is no question', async () => {
  const unknown = await ask('My email is eva@example.org. Do you sell zebrafish in spring?');
  const tag = await ask('Could you write to eva@example.org, please?');

  expect(unknown).toMatchObject({ low: true, why: { kind: 'unsure' } });
  expect(unknown.text).toContain(text('en', 'contactNoted'));
  expect(tag.text).toBe(text('en', 'contactNoted'));
});

test('an address in a question about the shop is not noted', async () => {
  const reply = await ask('Is hello@shop.example your address?');

  expect(reply.text).not.toContain(text('en', 'contactNoted'));
  expect(reply.why.kind).not.toBe('contact');
});

test('the explanation of a reply is compact and has no text of the visitor', async () => {
  const reply = await ask('how expensive is shipping zebrafish to jane@example.com');

  expect(Object.keys(reply.why)).toEqual(['engine', 'kind', 'language', 'by', 'hits', 'threshold', 'ms']);
  expect(JSON.stringify(reply.why)).not.toMatch(/zebrafish|jane|expensive/);
  expect((reply.why.hits as unknown[]).length).toBeLessThanOrEqual(3);
});

test('a changed version is indexed again', async () => {
  const before = anAssistant({ version: 'a', knowledge: [anEntry('old', 'Do you sell lamps?')] });
  const after = anAssistant({ version: 'b', knowledge: [anEntry('new', 'Do you sell lamps?')] });

  const replies = [
    await ask('do you sell lamps', { assistant: before }),
    await ask('do you sell lamps', { assistant: after }),
  ];

  expect(replies.map((reply) => reply.text)).toEqual(['The answer to old.', 'The answer to new.']);
});

/**
 * An assistant with so many entries that its questions are answered from the previous index while a new index is built.
 * `onRead` is called when a build reads the entries.
 */
const aLarge = (version: string, size: number, onRead: () => void = () => undefined): AssistantProfile => {
  const entries = Array.from({ length: size }, (_, nth) => anEntry(`${version}-${nth}`, `Where is thing ${nth}?`));
  const read = anEntry(version, 'Do you sell lamps?');
  Object.defineProperty(read, 'tags', { get: () => (onRead(), []) });
  return anAssistant({ assistantId: `large-${size}`, version, knowledge: [read, ...entries] });
};
const askForLamps = async (assistant: AssistantProfile): Promise<string> =>
  (await ask('do you sell lamps', { assistant })).text;

test('during fast edits one index is built at a time, and the last edit is not lost', async () => {
  const built: string[] = [];
  const edits = Array.from({ length: 12 }, (_, nth) => aLarge(`v${nth}`, 600, () => built.push(`v${nth}`)));
  const last = edits.at(-1) as AssistantProfile;

  const together = await Promise.all(edits.map(askForLamps));
  await vi.waitUntil(async () => (await askForLamps(last)) === 'The answer to v11.', { timeout: 10_000 });

  expect(new Set(together)).toEqual(new Set(['The answer to v0.']));
  expect(built).toEqual(['v0', 'v11']);
});

test('an older version that is indexed last does not replace a newer one', async () => {
  const versions = [3_000, 501, 501].map((size, nth) => ({ ...aLarge(`w${nth}`, size), assistantId: 'shrinking' }));
  const [first, second, third] = versions as [AssistantProfile, AssistantProfile, AssistantProfile];

  const early = askForLamps(first);
  await askForLamps({ ...second, knowledge: second.knowledge.slice(0, 400) });
  await early;
  const served = await askForLamps(third);

  expect(served).toBe('The answer to w1.');
});

test('an index of some hundred entries does not wait for the large ones of others', async () => {
  const own = createRetrievalEngine();
  const ended: string[] = [];
  const askOwn = async (assistantId: string, size: number, answer: string): Promise<void> => {
    const knowledge = Array.from({ length: size }, (_, nth) => anEntry(`${nth}`, `Where is thing ${nth}?`, { answer }));
    const assistant = anAssistant({ assistantId, knowledge });
    const context = { message: 'where is thing 7', language: 'en', history: async () => [] };
    await own.reply({ ...context, assistant, signal: new AbortController().signal });
    ended.push(assistantId);
  };
  const large = ['a', 'b', 'c', 'd'].map((id) => askOwn(id, 1_500, 'On the shelf. '.repeat(60)));

  await Promise.all([...large, askOwn('neighbour', 600, 'On the shelf.')]);

  expect(ended.indexOf('neighbour')).toBeLessThan(2);
});

/** Entries with so many characters that one such index is built at a time. */
const longEntries = (answer = 'On the shelf.'): EngineEntry[] =>
  Array.from({ length: 1_300 }, (_, nth) =>
    anEntry(`${nth}`, `Where is thing ${nth}?`, { answer: `${answer} `.repeat(60) }),
  );
const askForThing = (own: AssistantEngine, assistant: AssistantProfile): Promise<EngineReply> => {
  const context = { message: 'where is thing 7', language: 'en', history: async () => [] };
  return own.reply({ ...context, assistant, signal: new AbortController().signal });
};

test('what waits for the index of others keeps no knowledge, neither the turns nor the builds', async () => {
  const own = createRetrievalEngine();
  const wait = (assistantId: string) => {
    const aVersion = (): AssistantProfile => anAssistant({ assistantId, knowledge: longEntries() });
    const versions = [aVersion(), aVersion()];
    const replied = versions.map((one) => askForThing(own, { ...one, readAgain: async () => aVersion() }));
    return { read: versions.map(({ knowledge }) => new WeakRef(knowledge)), replied };
  };
  const first = askForThing(own, anAssistant({ assistantId: 'first', knowledge: longEntries() }));
  const waiting = ['second', 'third'].map(wait);
  await nextTick(); // a reference that was made in this tick keeps its object
  collect();

  const held = waiting.flatMap(({ read }) => read.map((one) => one.deref() !== undefined));
  const replies = await Promise.all([first, ...waiting.flatMap(({ replied }) => replied)]);

  expect(held).toEqual([false, false, false, false]);
  expect(replies.map(({ text: said }) => said.trim().slice(0, 13))).toEqual(Array(5).fill('On the shelf.'));
});

/** An engine without room to keep an index, so that each turn waits for one. `built`: whose, in their order. */
const openWithoutRoom = () => {
  const built: string[] = [];
  const own = createRetrievalEngine({
    memory: createSharedMemory({ maxBytes: 1 }),
    onLargeBuilt: ({ assistantId }) => built.push(assistantId),
  });
  const askAll = async (assistantIds: string[], knowledge: EngineEntry[]): Promise<void> => {
    await Promise.all(assistantIds.map((assistantId) => askForThing(own, anAssistant({ assistantId, knowledge }))));
  };
  return { built, askAll };
};
const MANY = Array.from({ length: 8 }, (_, nth) => `many ${nth}`);

test.for([
  { size: 'large', entries: longEntries(), places: 1 },
  { size: 'middle', entries: longEntries().slice(0, 600), places: 2 },
])('an assistant waits for a $size index or two, however many of others are built again and again', async (one) => {
  const { built, askAll } = openWithoutRoom();
  await askAll(MANY, one.entries);

  const again = askAll(MANY, one.entries);
  await askAll(['neighbour'], one.entries);
  const before = built.slice(MANY.length, built.indexOf('neighbour'));
  await again;

  // The running ones, perhaps the one that has waited longest, and one that ends beside it.
  expect(before.length).toBeLessThanOrEqual(one.places + 1);
  expect(built).toHaveLength(2 * MANY.length + 1);
});

test('an index that takes less is built before larger ones that wait, and these have their turns', async () => {
  const { built, askAll } = openWithoutRoom();
  const [more, less] = [longEntries(), longEntries().slice(0, 1_250)];

  const first = askAll(['running', 'large', 'larger'], more);
  await Promise.all([first, askAll(MANY, less)]);

  expect(built.slice(0, 4)).toEqual(['running', ...MANY.slice(0, 3)]);
  expect(built.indexOf('large')).toBe(4);
  expect(built.indexOf('larger')).toBe(8);
});

test('knowledge with many short texts is built in the place of the large ones', async () => {
  const { built, askAll } = openWithoutRoom();
  const variants = Array.from({ length: 10 }, () => 'a');
  const short = Array.from({ length: 9_000 }, (_, nth) => anEntry(`${nth}`, `${nth}`, { answer: 'b', variants }));

  const many = askAll(MANY.slice(0, 3), short);
  await askAll(['neighbour'], longEntries().slice(0, 600));
  const before = built.slice(0, built.indexOf('neighbour'));
  await many;

  expect(before.length).toBeLessThanOrEqual(1);
});

test('knowledge that has become large while its build waited is built in the place of the large ones', async () => {
  const ended: string[] = [];
  const own = createRetrievalEngine({ onLargeBuilt: ({ assistantId }) => ended.push(assistantId) });
  const grown = (assistantId: string): Promise<EngineReply> => {
    const knowledge = [anEntry('7', 'Where is thing 7?')];
    const readAgain = async () => anAssistant({ assistantId, knowledge: longEntries() });
    return askForThing(own, anAssistant({ assistantId, knowledge, readAgain }));
  };

  const replies = ['a', 'b', 'c'].map(async (assistantId) => {
    await grown(assistantId);
    return ended.length;
  });

  // One after the other: those that are built together would all end before the first of them is used.
  expect(await Promise.all(replies)).toEqual([1, 2, 3]);
});

test('assistants whose indexes push each other out get smaller ones, until none is built again', async () => {
  const built: string[] = [];
  const own = createRetrievalEngine({
    memory: createSharedMemory({ maxBytes: 7_000_000 }),
    maxBytes: 6_000_000,
    onLargeBuilt: ({ assistantId }) => built.push(assistantId),
  });
  const words = (nth: number): string =>
    Array.from({ length: 8 }, (_, at) => `w${(8 * nth + at).toString(36)}z`).join(' ');
  const knowledge = Array.from({ length: 2_000 }, (_, nth) =>
    anEntry(`${nth}`, `thing ${nth}`, { answer: words(nth) }),
  );
  const assistants = ['one', 'other'].map((assistantId) => anAssistant({ assistantId, knowledge }));
  const context = { message: 'thing 7', language: 'en', history: async () => [], signal: new AbortController().signal };
  const askAll = async (): Promise<string[]> => {
    const replies: string[] = [];
    for (const assistant of assistants) replies.push((await own.reply({ ...context, assistant })).text);
    return replies;
  };

  for (let round = 0; round < 5; round += 1) await askAll();
  const before = built.length;
  const replies = await askAll();

  expect(replies).toEqual([words(7), words(7)]);
  expect(built.slice(before)).toEqual([]);
});

test('a new version is built again and again only after rests, if turns have an index meanwhile', async () => {
  const built: number[] = [];
  const own = createRetrievalEngine({ onLargeBuilt: () => built.push(performance.now()) });
  const knowledge = longEntries();
  const edit = () => askForThing(own, anAssistant({ assistantId: 'edited', knowledge }));
  await edit();
  const editedAt = performance.now();
  while (built.length < 3) {
    await edit();
    await nextTick();
  }

  const [, second = 0, third = 0] = built;
  expect(third - second).toBeGreaterThan(3 * (second - editedAt));
});

test('an index that was read again with the languages of before is built once more with those of now', async () => {
  let built = 0;
  const own = createRetrievalEngine({ onLargeBuilt: () => (built += 1) });
  const now = anAssistant({ assistantId: 'renamed', languages: ['de'], knowledge: longEntries() });
  const before = {
    ...now,
    version: 'before',
    languages: ['en'],
    readAgain: async () => ({ ...now, languages: ['en'] }),
  };

  await askForThing(own, before);
  await askForThing(own, now);

  await vi.waitFor(() => expect(built).toBe(2), { timeout: 20_000 });
});

test('knowledge that exceeds the memory is indexed in part, the questions first, and how much is left out is told', async () => {
  const told: number[] = [];
  const own = createRetrievalEngine({ maxBytes: 3_000_000, onLargeBuilt: (_, leftOut) => told.push(leftOut) });
  const rareWords = (nth: number) => [0, 1, 2, 3].map((at) => `w${(4 * nth + at).toString(36)}z`).join(' ');
  const knowledge = Array.from({ length: 600 }, (_, nth) =>
    anEntry(`${nth}`, rareWords(nth), { variants: [1, 2, 3].map((more) => rareWords(600 * more + nth)) }),
  );
  const context = { language: 'en', history: async () => [], signal: new AbortController().signal };

  const { text: said } = await own.reply({
    ...context,
    message: rareWords(500),
    assistant: anAssistant({ knowledge }),
  });

  expect(said).toBe('The answer to 500.');
  expect(told).toEqual([expect.any(Number)]);
  expect(told[0]).toBeGreaterThan(600);
});

test('no message, language or history makes the engine throw', async () => {
  const length = sized({ everyday: 800, long: 8_000 });
  const hostile = [
    '$salt',
    '__proto__',
    'constructor',
    'toString valueOf',
    '',
    ' ',
    '\0',
    '😀'.repeat(length),
    'a'.repeat(length),
    'a@'.repeat(length / 2),
    '1 '.repeat(length / 2),
    '\ud800',
    '.*+?^${}()|[]\\',
  ];
  const entries = hostile.map((question, at) =>
    anEntry(`${at}`, question, { variants: hostile, tags: hostile, answer: question || '-' }),
  );
  const assistants = [SHOP, anAssistant({ knowledge: [] }), anAssistant({ knowledge: entries })];

  const turns = fc.asyncProperty(
    fc.oneof(
      fc.constantFrom(...hostile),
      fc.string({ unit: 'binary', maxLength: 300 }),
      fc.string({ unit: 'grapheme', maxLength: 300 }),
    ),
    fc.constantFrom(...assistants),
    fc.constantFrom('en', 'ja', 'zh-Hant-TW', 'x-private', 'tlh', 'ar'),
    fc.anything(),
    async (message, assistant, language, why) => {
      const reply = await ask(message, { assistant, language, history: [{ role: 'assistant', content: '', why }] });
      expect(reply.text.length).toBeGreaterThan(0);
      expect(reply.confidence).toBeGreaterThanOrEqual(0);
      expect(reply.confidence).toBeLessThanOrEqual(1);
    },
  );

  await fc.assert(turns, { numRuns: sized({ everyday: 20, long: 300 }) });
});

test('the default texts cover at least 25 languages with regions and traditional Chinese, and are English otherwise', () => {
  const holding = ['de-AT', 'pt-BR', 'nb', 'zh-TW', 'tlh'].map(holdingText);

  expect(TEXT_LANGUAGES.length).toBeGreaterThanOrEqual(25);
  expect(holding).toEqual([
    text('de', 'holding'),
    text('pt', 'holding'),
    text('no', 'holding'),
    text('zh-Hant', 'holding'),
    text('en', 'holding'),
  ]);
});

test('every language is named in every other, and a private one by its tag', () => {
  const notes = TEXT_LANGUAGES.map((language) => otherLanguageText(language, 'en-GB'));
  const nameless = otherLanguageText('fr', 'x-ours');

  expect(notes.filter((note) => note.includes('{language}'))).toEqual([]);
  expect(nameless).toContain('x-ours');
});

test('many long questions that arrive together are answered one after the other', async () => {
  const words = (nth: number) =>
    Array.from({ length: 1_000 }, (_, at) => `w${nth * 1_000 + at} shipping`)
      .join(' ')
      .slice(0, 7_900);
  const questions = Array.from({ length: 60 }, (_, nth) => words(nth));
  await ask(words(0));
  let answered = 0;
  const answeredByTick: number[] = [];

  const asked = questions.map(async (question) => {
    await ask(question);
    answered += 1;
  });
  while (answered < questions.length) {
    const before = answered;
    await nextTick();
    answeredByTick.push(answered - before);
  }
  await Promise.all(asked);

  // Each takes one to two milliseconds.
  expect(Math.max(...answeredByTick)).toBeLessThan(20);
});

test('while the index of a new version is built, a turn has the settings of the version that answers it', async () => {
  const own = createRetrievalEngine();
  const many = (answer: string) =>
    Array.from({ length: 600 }, (_, nth) => anEntry(`thing-${nth}`, `Where is the thing number ${nth}?`, { answer }));
  const first = anAssistant({ knowledge: many('First.'), threshold: 0.1, publishedVersion: 1 });
  const second = anAssistant({ knowledge: many('Second.'), threshold: 0.2, publishedVersion: 2 });
  const reply = async (assistant: AssistantProfile) => {
    const context = { message: 'Where is the thing number 7?', language: 'en', history: async () => [] };
    const { text: said, why } = await own.reply({ ...context, assistant, signal: new AbortController().signal });
    return [said, why['threshold'], assistant.publishedVersion];
  };
  await own.atVersion?.(first, true);

  const chosen = await own.atVersion?.(second, true);
  await vi.waitFor(async () => expect((await own.atVersion?.(second, false))?.publishedVersion).toBe(2));

  // The new index is there, and the turn goes on with the one that it began with.
  expect(await reply(chosen ?? second)).toEqual(['First.', 0.1, 1]);
  expect(await reply((await own.atVersion?.(second, true)) ?? second)).toEqual(['Second.', 0.2, 2]);
});

test('no job waits for an index', async () => {
  const own = createRetrievalEngine();
  const few = anAssistant({ knowledge: [anEntry('shop', 'Where is the shop?')] });
  const edited = { ...few, version: 'edited' };
  const none = anAssistant({ knowledge: [] });
  const isApart = () => [few, edited, none].map((one) => own.needsProvider?.(one));
  const ask = { message: 'Where is the shop?', language: 'en', history: async () => [] };

  const before = isApart();
  await own.reply({ ...ask, assistant: few, signal: new AbortController().signal });

  expect([before, isApart()]).toEqual([
    [true, true, false],
    [false, true, false],
  ]);
});
