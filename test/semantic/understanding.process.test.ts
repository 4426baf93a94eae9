import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { aHotel, HOTEL } from '../support/hotel.ts';
import { modelProcessesOf, isLocalModelFor, modelFolder } from '../kit/semantic.ts';
import { longTest, sized } from '../support/size.ts';
import { openStack, type Stack } from '../support/stack.ts';

/** Workers, each with its own model process, and one hotel assistant. */
const WORKERS = sized({ everyday: 1, long: 2 });
let stack: Stack;
let hotel: Awaited<ReturnType<typeof aHotel>>;

beforeAll(async () => {
  if (!isLocalModelFor) return;
  stack = await openStack({ env: { SEMANTIC_DIR: modelFolder() }, replyWorkers: WORKERS, deliveryWorkers: 0 });
  hotel = await aHotel(stack);
});
afterAll(async () => stack?.close());

const PETS = 'Are pets allowed?';

test.runIf(isLocalModelFor)(
  'a question in other words is answered, and its explanation has both kinds of evidence',
  async () => {
    const ask = hotel.aGuest();

    const other = await ask('can I bring my dog');
    const same = await ask(PETS);

    expect(other.reply).toBe(hotel.answerTo(PETS));
    expect(other.why).toMatchObject({ kind: 'answer', by: 'both' });
    expect(other.why?.hits[0]).toEqual({
      entryId: expect.any(String),
      score: expect.any(Number),
      words: expect.any(Number),
      meaning: expect.closeTo(0.843, 2),
    });
    expect(other.why?.hits[0]?.words).toBeLessThan(0.5);
    expect(JSON.stringify(other.why)).not.toContain('dog');
    expect(same).toMatchObject({ reply: hotel.answerTo(PETS), why: { kind: 'answer', by: 'wording' } });
  },
);

test.runIf(isLocalModelFor)('a question in German finds an English entry, or the German one if it exists', async () => {
  const german = {
    question: 'Sind Haustiere erlaubt?',
    answer: 'Ja, ein Hund oder eine Katze pro Zimmer.',
    language: 'de',
  };
  const both = await aHotel(stack, { knowledge: [...HOTEL, { variants: [], actions: [], tags: [], ...german }] });

  const given = await hotel.aGuest()('Darf ich meinen Hund mitbringen?');
  const translated = await both.aGuest()('Darf ich meinen Hund mitbringen?');

  expect(given.reply).toContain(hotel.answerTo(PETS));
  expect(translated.reply).toBe(german.answer);
});

test.runIf(isLocalModelFor)(
  'an unsure match is hedged and offers other questions, and pressing one gives its answer',
  async () => {
    const ask = hotel.aGuest();

    const offer = await ask('we arrive very late at night, is that fine');
    const questions = offer.actions.filter(({ type }) => type === 'reply');
    const [other] = questions;
    const pressed = await ask(other?.payload ?? 'nothing to press');

    expect(offer.why).toMatchObject({ kind: 'hedge', by: 'both' });
    expect(offer.reply).toBe(
      `This may be what you are looking for:\n${hotel.answerTo('What if I arrive after 11 pm?')}`,
    );
    expect(questions.at(-1)?.label).toBe('That is not what I meant');
    expect(questions.length).toBeGreaterThan(1);
    expect(questions.length).toBeLessThanOrEqual(3);
    expect(pressed.reply).toBe(hotel.answerTo(other?.label ?? ''));
  },
);

test.runIf(isLocalModelFor)('a topic outside the knowledge is not answered, even if it sounds similar', async () => {
  for (const message of [
    'who won the football last night',
    'how do I cancel my newspaper',
    'do you have a tennis court',
  ]) {
    const { why } = await hotel.aGuest()(message);
    expect([message, why?.kind]).toEqual([message, expect.stringMatching(/^(unsure|askBack|hedge)$/)]);
  }
});

test.runIf(isLocalModelFor)('a follow-up is understood with the previous question, a new question is not', async () => {
  const ask = hotel.aGuest();

  await ask(PETS);
  const leaning = await ask('do they cost extra?');
  const alone = await ask('from when can we check in');

  expect(leaning.reply).toBe(hotel.answerTo(PETS));
  expect(alone.reply).toBe(hotel.answerTo('What time is check-in?'));
});

test.runIf(isLocalModelFor)(
  'without the model a turn is answered by words, and by both when the model is back',
  async () => {
    const before = await hotel.aGuest()('can I bring my dog');

    for (const pid of modelProcessesOf()) process.kill(pid, 'SIGKILL');
    const worded = await hotel.aGuest()('when is the breakfast');
    const missed = await hotel.aGuest()('may I take my dog along');

    expect(before.why?.by).toBe('both');
    expect(worded.reply).toBe(hotel.answerTo('When is breakfast served?'));
    expect(missed.why?.by).not.toBe('both');
    await eventually(async () => expect((await hotel.aGuest()('can I bring a dog')).why?.by).toBe('both'));
  },
);

test.runIf(isLocalModelFor)('with SEMANTIC=off words decide alone', async () => {
  const dull = await openStack({ env: { SEMANTIC: 'off', SEMANTIC_DIR: modelFolder() }, deliveryWorkers: 0 });
  onTestFinished(dull.close);
  const inn = await aHotel(dull, { known: false });

  const worded = await inn.aGuest()('when is the breakfast');
  const missed = await inn.aGuest()('can I bring my dog');

  expect(worded).toMatchObject({ reply: inn.answerTo('When is breakfast served?'), why: { by: 'words' } });
  expect(missed.reply).not.toBe(inn.answerTo(PETS));
  expect(missed.why?.hits.every(({ meaning }) => meaning === undefined)).toBe(true);
});

const withModel = isLocalModelFor ? longTest : (): void => undefined;

withModel('two workers give the same answers', async () => {
  const messages = [
    'can I bring my dog',
    'may I take my dog along',
    'until when do we have to be out',
    'is the wifi free',
  ];

  // A busy model leaves a turn to words alone, so a machine with other work may need another try.
  const rounds = await eventually(async () => {
    const all = await Promise.all(
      [1, 2, 3, 4].map(() => Promise.all(messages.map(async (message) => (await hotel.aGuest()(message)).reply))),
    );
    for (const replies of all) expect(replies).toEqual(all[0]);
    return all;
  });

  expect(rounds[0]?.[0]).toBe(hotel.answerTo(PETS));
});
