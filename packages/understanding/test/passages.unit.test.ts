import { expect, test } from 'vitest';
import { hostileTexts, slowOf } from '../../../test/support/hostile-texts.ts';
import { sized } from '../../../test/support/size.ts';
import { quoteOf, sentencesOf } from '../src/retrieval/passage-search.ts';
import {
  cosineTo,
  decideReply,
  indexEntries,
  type IndexedPassage,
  type Passage,
  PassageIndex,
  PassageIndexUpdate,
  passageEngine,
  type PassageSearch,
  quantised,
  rowsOf,
} from '../src/understanding.ts';

const MODEL = 'a-model';
const DIMENSIONS = 384;

const aPassage = (overrides: Partial<IndexedPassage> = {}): IndexedPassage => ({
  passageId: 'p',
  title: 'Handbook',
  path: ['Handbook', 'General'],
  text: 'A text about nothing.',
  language: 'en',
  vector: null,
  ...overrides,
});

const finished = (update: PassageIndexUpdate): PassageIndex => {
  const steps = update.finish();
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
};

const changed = (
  before: PassageIndex | null,
  { add = [], remove = [] }: { add?: IndexedPassage[]; remove?: string[] },
): PassageIndex => {
  const update = new PassageIndexUpdate(before, { model: MODEL });
  for (const passageId of remove) update.remove(passageId);
  for (const passage of add) update.add(passage);
  return finished(update);
};

const foundBy = async (index: PassageIndex, question: string, vector: Float32Array | null = null): Promise<string[]> =>
  (await index.search(question, 'en', vector)).hits
    .toSorted((one, other) => other.words - one.words || (other.cosine ?? 0) - (one.cosine ?? 0))
    .map(({ passageId }) => passageId);

/** A vector that is near those of the same group. */
const aVector = (group: number, own = 0): Float32Array =>
  Float32Array.from({ length: DIMENSIONS }, (_, at) => {
    const shared = Math.sin((group + 1) * 12.9898 + at * 78.233) * 43_758.5453;
    const single = Math.sin((own + 1) * 39.346 + at * 11.135) * 24_634.6345;
    return shared - Math.floor(shared) - 0.5 + 0.4 * (single - Math.floor(single) - 0.5);
  });
const unit = (vector: Float32Array): Float32Array => {
  const length = Math.hypot(...vector);
  return vector.map((value) => value / length);
};

/** A word of letters for a number, so that no stemmer changes it. */
const wordOf = (number: number): string =>
  `z${String(number).replaceAll(/\d/g, (digit) => String.fromCharCode(107 + Number(digit)))}z`;

test('passages are found by their words, those of headings and titles too, and misspelt ones', async () => {
  const index = changed(null, {
    add: [
      aPassage({ passageId: 'parking', text: 'Guests leave their cars behind the house.', path: ['House', 'Parking'] }),
      aPassage({ passageId: 'breakfast', text: 'We serve it from seven to ten in the garden.', title: 'Breakfast' }),
      aPassage({ passageId: 'dogs', text: 'Dogs are welcome; bring a blanket.' }),
    ],
  });

  expect(await foundBy(index, 'where is the parking')).toEqual(['parking']);
  expect(await foundBy(index, 'when is breakfast')).toEqual(['breakfast']);
  expect((await foundBy(index, 'is my blankett needed'))[0]).toBe('dogs');
  expect(await foundBy(index, 'the and of')).toEqual([]);
});

test('an update gives another index, and the one before stays as it was', async () => {
  const before = changed(null, {
    add: [
      aPassage({ passageId: 'a', text: 'The pool opens at nine.' }),
      aPassage({ passageId: 'b', text: 'A sauna.' }),
    ],
  });

  const after = changed(before, { remove: ['a'], add: [aPassage({ passageId: 'c', text: 'The pool opens at ten.' })] });

  expect(await foundBy(before, 'pool')).toEqual(['a']);
  expect(await foundBy(after, 'pool')).toEqual(['c']);
  expect([before, after].map(({ size }) => size)).toEqual([2, 2]);
  expect([...after.passageIds()].toSorted()).toEqual(['b', 'c']);
  expect([after.has('a'), after.has('b'), before.has('a')]).toEqual([false, true, true]);
});

test('an index that was changed many times finds what a new one finds, in as few bytes', async () => {
  let index: PassageIndex | null = null;
  const kept = new Map<string, IndexedPassage>();
  for (let round = 0; round < 60; round += 1) {
    const add = Array.from({ length: 1 + ((round * 7) % 23) }, (_, nth) => {
      const number = (round * 31 + nth * 17) % 400;
      const text = `${wordOf(number)} ${wordOf(number % 20)} and ${wordOf(round)} more`;
      return aPassage({ passageId: `${number}`, text, vector: quantised(unit(aVector(number, round))) });
    });
    const remove = [...kept.keys()].filter((_, nth) => (nth + round) % 9 === 0);
    index = changed(index, { remove, add });
    for (const passageId of remove) kept.delete(passageId);
    for (const passage of add) kept.set(passage.passageId, passage);
  }
  const fresh = changed(null, { add: [...kept.values()] });

  expect([...(index as PassageIndex).passageIds()].toSorted()).toEqual([...kept.keys()].toSorted());
  for (let number = 0; number < 60; number += 1) {
    const question = wordOf(number);
    expect((await foundBy(index as PassageIndex, question)).toSorted()).toEqual(
      (await foundBy(fresh, question)).toSorted(),
    );
  }
  expect(index?.parts.length).toBeLessThan(12);
  expect(index?.bytes).toBeLessThan(1.7 * fresh.bytes);
});

test('a passage that is added again counts once', async () => {
  const index = changed(null, { add: [aPassage({ text: 'A lake.' }), aPassage({ text: 'A lake.' })] });

  const again = changed(index, { add: [aPassage({ text: 'A river.' })] });

  expect([index.size, again.size]).toEqual([1, 1]);
  expect(await foundBy(again, 'lake')).toEqual([]);
  expect(await foundBy(again, 'river')).toEqual(['p']);
});

test('vectors come later, and those of another model are dropped', async () => {
  const index = changed(null, { add: [aPassage({ passageId: 'a' }), aPassage({ passageId: 'b' })] });
  const update = new PassageIndexUpdate(index, { model: MODEL });
  update.setVector('b', quantised(unit(aVector(1))));
  const withVector = finished(update);
  const other = finished(new PassageIndexUpdate(withVector, { model: 'another' }));

  const hits = (await withVector.search('xyz', 'en', unit(aVector(1)))).hits;

  expect(hits).toMatchObject([{ passageId: 'b' }]);
  expect(hits[0]?.cosine).toBeGreaterThan(0.99);
  expect(['a', 'b'].map((passageId) => withVector.hasVector(passageId))).toEqual([false, true]);
  expect([other.hasVector('b'), other.has('b'), other.model]).toEqual([false, true, 'another']);
});

test('what does not fit into the memory is left out', () => {
  const update = new PassageIndexUpdate(null, { model: MODEL, maxBytes: 100_000 });

  const added = Array.from({ length: 2_000 }, (_, nth) =>
    update.add(aPassage({ passageId: `${nth}`, text: `${wordOf(nth)} ${wordOf(nth + 1)}` })),
  );
  const index = finished(update);

  expect(index.size).toBe(added.filter(Boolean).length);
  expect(index.size).toBeGreaterThan(50);
  expect(index.bytes).toBeLessThan(150_000);
});

const QUOTE = {
  question: 'What does late checkout cost?',
  visitorLanguage: 'en',
  language: 'en',
  heading: 'Rooms',
  cosines: null,
  weights: new Float64Array(),
};

test('a quote has whole sentences, in order, and not many more than the answer', () => {
  const filler = 'The garden has old trees and a pond with fish that like to be fed by guests in the morning.';
  const text = `${filler} ${filler.replace('garden', 'park')} Late checkout costs 20 EUR. Ask Dr. Miller at the desk. ${filler.replace('garden', 'yard')} ${filler.replace('garden', 'lawn')}`;

  const quote = quoteOf({ text }, QUOTE)?.text ?? '';

  expect(quote).toContain('Late checkout costs 20 EUR.');
  expect(quote.length).toBeLessThanOrEqual(400);
  expect(text).toContain(quote);
  expect(sentencesOf(text, 'en').map(({ from, to }) => text.slice(from, to).trim())).toContain(
    'Ask Dr. Miller at the desk.',
  );
  expect(sentencesOf(text, 'en').some(({ from }) => text.slice(from).startsWith(quote.slice(-20)))).toBe(false);
});

test('a long sentence is given whole up to 900 characters, and a longer one not at all', () => {
  const long = `Late checkout costs ${'a little, '.repeat(60)}nothing.`;
  const endless = `Late checkout costs ${'a little, '.repeat(120)}nothing.`;

  expect(quoteOf({ text: `${long} It is so.` }, QUOTE)?.text).toBe(long);
  expect(quoteOf({ text: endless }, QUOTE)).toBeNull();
});

test('each line of a list or table is a sentence, but not the number of an item', () => {
  const text = '1. Breakfast is at seven.\n2. Lunch is at noon.\nSauna\t10 EUR\nLate checkout\t20 EUR';

  const lines = sentencesOf(text, 'en').map(({ from, to }) => text.slice(from, to).trim());

  expect(lines).toEqual([
    '1. Breakfast is at seven.',
    '2. Lunch is at noon.',
    'Sauna\t10 EUR',
    'Late checkout\t20 EUR',
  ]);
});

test('of a table, the row asked for is quoted, and several rows if none is', () => {
  const row = (nth: number): string => `Code: E${nth}; Meaning: the pump of basin ${nth}; What to do: Call us`;
  const text = Array.from({ length: 9 }, (_, nth) => row(10 + nth)).join('\n');
  const quoted = (question: string): string[] | undefined =>
    quoteOf({ text }, { ...QUOTE, question })?.text.split('\n');

  expect(quoted('what does E14 mean')).toEqual([row(14)]);
  expect(quoted('E17 or E18?')).toEqual([row(17), row(18)]);
  expect(quoted('which codes are there')?.length).toBeGreaterThan(3);
});

test('of a table, all rows that have the word asked for are quoted', () => {
  const row = (nth: number): string => `Room: number ${nth}; View: ${nth < 13 ? 'sea' : 'yard'}; Beds: two`;
  const text = Array.from({ length: 9 }, (_, nth) => row(10 + nth)).join('\n');

  const quote = quoteOf({ text }, { ...QUOTE, question: 'which rooms look at the sea' });

  expect(quote?.text.split('\n')).toEqual([row(10), row(11), row(12)]);
});

test('hostile texts are read, searched and quoted quickly', () => {
  const texts = hostileTexts(900, sized({ everyday: ['x'], long: ['x', ' '] }));
  const index = changed(null, {
    add: texts.map(([, text], nth) => aPassage({ passageId: `${nth}`, text, title: text, path: [text, text] })),
  });
  const steps = (text: string): void => {
    const update = new PassageIndexUpdate(null, { model: MODEL });
    update.add(aPassage({ text, title: text, path: [text] }));
    finished(update);
  };

  expect(index.size).toBe(texts.length);
  expect(slowOf((text) => quoteOf({ text }, { ...QUOTE, question: text }), texts)).toEqual([]);
  expect(slowOf(steps, texts)).toEqual([]);
  // Up to its first pause.
  expect(slowOf((text) => void index.search(text, 'en', null), hostileTexts(8_000, ['x']))).toEqual([]);
});

const passages: Passage[] = [
  aPassage({
    passageId: 'late',
    path: ['Rooms', 'Checkout'],
    text: 'Checkout is until eleven. Late checkout until two costs 20 EUR.',
  }),
  aPassage({
    passageId: 'dogs',
    path: ['House', 'Dogs'],
    text: 'Dogs are welcome in all rooms of the old wing. A dog costs 12 EUR a night.',
  }),
  aPassage({
    passageId: 'pool',
    path: ['House', 'Pool'],
    text: 'The pool on the roof opens at nine and is heated until October.',
  }),
  aPassage({
    passageId: 'train',
    path: ['Arrival', 'Train'],
    text: 'From the main station take tram 4 to the harbour.',
  }),
];

const searchOf = (asked: string[] = []): PassageSearch => ({
  index: changed(null, { add: passages.map((passage) => ({ ...passage, vector: null })) }),
  embed: async (question) => {
    asked.push(question);
    return null;
  },
  read: async (passageIds) =>
    passages.filter(({ passageId }) => passageIds.includes(passageId)).map((passage) => ({ passage, tokens: null })),
});

const entries = indexEntries({
  languages: ['en'],
  knowledge: [
    {
      entryId: 'bikes',
      language: 'en',
      question: 'Do you rent bikes?',
      variants: [],
      answer: 'Yes, 15 EUR a day.',
      tags: [],
    },
    {
      entryId: 'wifi',
      language: 'en',
      question: 'What is the WiFi password?',
      variants: [],
      answer: 'harbour24',
      tags: [],
    },
  ],
});

const ask = (message: string, overrides: Partial<Parameters<typeof decideReply>[0]> = {}) =>
  decideReply({
    message,
    language: 'en',
    index: entries,
    answering: 'balanced',
    threshold: null,
    history: async () => [],
    passages: searchOf(),
    ...overrides,
  });

test('a question that a passage answers gets its sentences, and why says which passage', async () => {
  const decision = await ask('How much is late checkout until two?');

  expect(decision).toMatchObject({ passage: { passageId: 'late' }, language: 'en', isForeign: false });
  expect(['answer', 'hedge']).toContain(decision.kind);
  expect(decision).toHaveProperty('quote', expect.stringContaining('Late checkout until two costs 20 EUR.'));
  expect(decision.why.passages?.[0]).toMatchObject({ passageId: 'late' });
  expect((await ask('How much is late checkout until two?', { answering: 'direct' })).why.threshold).toBe(0.55);
  expect(JSON.stringify(decision.why)).not.toContain('EUR');
});

test('a question that an entry surely answers asks for no vector', async () => {
  const asked: string[] = [];

  const decision = await ask('Do you rent bikes', { passages: searchOf(asked) });

  expect(decision).toMatchObject({ kind: 'answer', entry: { entryId: 'bikes' } });
  expect(decision.why).not.toHaveProperty('passages');
  expect(asked).toEqual([]);
});

test('passages answer without any entry, and what they do not know stays unanswered', async () => {
  const known = await ask('How much is a dog a night?', { index: null });
  const unknown = await ask('Who won the elections in Peru?', { index: null });
  const smallTalk = await ask('thank you', { index: null });

  expect(known).toMatchObject({ passage: { passageId: 'dogs' } });
  expect(unknown.kind).toBe('unsure');
  expect(smallTalk.kind).toBe('thanks');
});

const TERMS = [
  aPassage({
    passageId: 'terms',
    title: 'Terms',
    path: ['Terms'],
    text: '1. Scope\nThese terms cover boats.\n2. Liability › 2.1 Storm\nThe harbour pays for ropes only.\n2. Liability › 2.2 Theft\nIt pays nothing.',
  }),
  aPassage({ passageId: 'zh', title: '条款', path: ['条款', '3. 退款'], text: '退款需要十天。', language: 'zh' }),
  aPassage({ passageId: 'fees', title: 'Terms', path: ['Terms', '§ 12 Fees'], text: 'Fees are due in May. Ask us.' }),
];
const searchIn = (pages: Passage[]): PassageSearch => ({
  ...searchOf(),
  index: changed(null, { add: pages.map((passage) => ({ ...passage, vector: null })) }),
  read: async () => pages.map((passage) => ({ passage, tokens: null })),
});

test.each([
  ['What does section 2.1 say?', '2. Liability › 2.1 Storm\nThe harbour pays for ropes only.'],
  ['Was steht in Abschnitt 2.2?', '2. Liability › 2.2 Theft\nIt pays nothing.'],
  ['clause 1 please', '1. Scope\nThese terms cover boats.'],
  ['que dice la sección 2.1', '2. Liability › 2.1 Storm\nThe harbour pays for ropes only.'],
  ['条款第3条写了什么', '退款需要十天。'],
  ['and §12?', 'Fees are due in May. Ask us.'],
])('%s is answered by the section with this number', async (message, quote) => {
  expect(await ask(message, { index: null, passages: searchIn(TERMS) })).toMatchObject({ kind: 'answer', quote });
});

test('a number that two documents have, and one that is no section’s, make nothing sure', async () => {
  const two = [
    ...TERMS,
    aPassage({ passageId: 'rules', title: 'Rules', path: ['Rules', '2.1 Dogs'], text: 'No dogs.' }),
  ];

  expect((await ask('What does section 2.1 say?', { index: null, passages: searchIn(two) })).kind).toBe('hedge');
  expect((await ask('Does version 2.1 work?', { index: null, passages: searchIn(TERMS) })).kind).not.toBe('answer');
  expect((await ask('section 2.11', { index: null, passages: searchIn(TERMS) })).kind).not.toBe('answer');
});

test('a passage under the question of an offered entry has no button of its own', async () => {
  const knowledge = [
    { question: 'May dogs stay in all rooms?', answer: 'Yes.' },
    { question: 'What does a dog cost?', answer: '12 EUR.' },
  ].map((one, nth) => ({ entryId: `e${nth}`, language: 'en', variants: [], tags: [], ...one }));
  const pages = [
    ...passages,
    aPassage({ passageId: 'same', path: ['House', 'May dogs stay in all rooms'], text: 'Dogs may.' }),
  ];
  const search: PassageSearch = {
    ...searchOf(),
    index: changed(null, { add: pages.map((passage) => ({ ...passage, vector: null })) }),
    read: async () => pages.map((passage) => ({ passage, tokens: null })),
  };

  const decision = await ask('dog allowed', {
    index: indexEntries({ languages: ['en'], knowledge }),
    passages: search,
  });

  const choices = decision.kind === 'askBack' ? decision.choices : [];
  expect(choices.map(({ entry, passage }) => entry?.entryId ?? passage?.passageId)).toEqual(['e0', 'e1', 'dogs']);
});

test('a question without spaces is as long as the same question with spaces', async () => {
  const pages = [
    aPassage({ passageId: 'late', language: 'zh', text: '退房时间是十一点。两点前退房要付二十欧元。' }),
    aPassage({ passageId: 'dogs', language: 'zh', text: '老楼的房间都欢迎带狗。' }),
  ];
  const search: PassageSearch = {
    index: changed(null, { add: pages }),
    embed: async () => null,
    read: async () => pages.map((passage) => ({ passage, tokens: null })),
  };

  const [joined, spaced] = await Promise.all(
    ['两点前退房要付多少欧元', '两点 前 退房 要 付 多少 欧元'].map((message) =>
      ask(message, { language: 'zh', index: null, passages: search }),
    ),
  );

  expect(joined?.why.passages?.[0]).toMatchObject({ passageId: 'late', score: spaced?.why.passages?.[0]?.score });
});

test('passages that are gone when they are read are left out', async () => {
  const decision = await ask('How much is late checkout until two?', {
    index: null,
    passages: { ...searchOf(), read: async () => [] },
  });

  expect(decision.kind).toBe('unsure');
});

test('two small parts do not keep larger ones of one size apart', () => {
  let index: PassageIndex | null = null;
  const add = (from: number, count: number): void => {
    const some = Array.from({ length: count }, (_, nth) => aPassage({ passageId: `${from}-${nth}` }));
    index = changed(index, { add: some });
  };
  for (const [nth, count] of [90, 30, 9, ...Array.from({ length: 12 }, () => 200)].entries()) add(nth, count);

  expect((index as PassageIndex | null)?.parts.length).toBeLessThan(7);
});

test('a passage that comes back does not do all work on parts in one step', () => {
  const all = Array.from({ length: 1_000 }, (_, nth) => aPassage({ passageId: `${nth}`, text: `Text ${nth}.` }));
  const update = new PassageIndexUpdate(changed(null, { add: all }), { model: MODEL });
  // So many leave that their part is written again.
  for (const { passageId } of all.slice(0, 400)) update.remove(passageId);
  update.add(aPassage({ passageId: 'new' }));

  update.add(all[0]!);

  const left = update.finish();
  let step = left.next();
  let steps = 0;
  for (; !step.done; steps += 1) step = left.next();
  expect(step.value.size).toBe(602);
  expect(steps).toBeGreaterThan(30);
});

test('a stored index finds what the index finds, once, and drops vectors of another model', async () => {
  const vectorOf = (nth: number): Int8Array =>
    quantised(Float32Array.from({ length: DIMENSIONS }, (_, at) => Math.sin(nth * 7 + at)));
  const texts = ['A refund takes 14 days.', 'Ein Paket kommt um sechs.', 'We wrap gifts in paper.', '本店九点开门。'];
  const some = texts.map((text, nth) =>
    aPassage({ passageId: `p${nth}`, text, language: ['en', 'de', null, 'zh'][nth] ?? null, vector: vectorOf(nth) }),
  );
  const index = changed(null, { add: some });
  const parts = [...index.stored()].map((pieces) => new Uint8Array(Buffer.concat(pieces)));
  const read = (model: string, times: number): PassageIndex => {
    const update = new PassageIndexUpdate(null, { model });
    for (let time = 0; time < times; time += 1) {
      for (const part of parts) for (const _ of update.addStored(new Uint8Array(part), MODEL));
    }
    return finished(update);
  };
  const asked = Float32Array.from(vectorOf(1));
  const find = (one: PassageIndex) => one.search('how long does a refund take', 'en', asked);

  expect(await find(read(MODEL, 2))).toEqual(await find(index));
  expect(read(MODEL, 2).size).toBe(texts.length);
  expect([read('another', 1).hasVector('p1'), read(MODEL, 1).hasVector('p1')]).toEqual([false, true]);
  expect(changed(read(MODEL, 1), { remove: ['p1'], add: [aPassage({ passageId: 'p9' })] }).size).toBe(texts.length);
  expect(passageEngine()).toMatch(/^[\w-]{16}$/);
});

test('a stored index of many passages has all their ids and words', () => {
  const some = Array.from({ length: 1_000 }, (_, nth) =>
    aPassage({ passageId: `passage number ${nth}`, text: `Waschgerät${nth} steht hier.`, language: 'de' }),
  );
  const stored = (index: PassageIndex) => [...index.stored()].map((pieces) => new Uint8Array(Buffer.concat(pieces)));
  const parts = stored(changed(null, { add: some }));
  const update = new PassageIndexUpdate(null, { model: MODEL });
  for (const part of parts) for (const _ of update.addStored(part.slice(), MODEL));
  const read = finished(update);

  expect([...read.passageIds()].toSorted()).toEqual(some.map(({ passageId }) => passageId).toSorted());
  expect(stored(read)).toEqual(parts);
});

test('a stored index that does not fit is left out', () => {
  const index = changed(null, { add: [aPassage()] });
  const [part = []] = index.stored();
  const bytes = new Uint8Array(Buffer.concat(part));
  const update = new PassageIndexUpdate(null, { model: MODEL, maxBytes: bytes.length - 1 });

  const step = update.addStored(bytes, MODEL).next();

  expect(step).toEqual({ done: true, value: false });
});

test('Bulgarian adjectives are read like other words', () => {
  const index = changed(null, { add: [aPassage({ language: 'bg', text: 'Документът е автентичен.' })] });

  expect(index.size).toBe(1);
});

test.each([384, 3_072, 8_192])('the cosine of vectors of %i numbers is right to three digits', (length) => {
  const [one, other, steady] = [3, 5, null].map((step) =>
    Float32Array.from({ length }, (_, at) => (step === null ? 1 : 1 + Math.sin(step * at))),
  ) as [Float32Array, Float32Array, Float32Array];
  const product = (a: Float32Array, b: Float32Array): number => a.reduce((sum, value, at) => sum + value * b[at]!, 0);
  const exact = product(one, other) / Math.sqrt(product(one, one) * product(other, other));

  expect(cosineTo(one)(rowsOf(other, 1), 0)).toBeCloseTo(exact, 3);
  expect(cosineTo(steady)(rowsOf(steady, 1), 0)).toBeCloseTo(1, 3);
});
