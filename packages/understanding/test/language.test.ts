import { expect, test } from 'vitest';
import { decideLanguage } from '../src/language.ts';
import { LEXICON } from '../src/fold.ts';
import { loadChatMessages, measureLanguage } from '../eval/measure.ts';

test('the language sent with a message has precedence over the detected one', () => {
  const evidence = { given: 'fr-CA', message: 'Guten Tag, ich habe eine Frage', previous: 'de' };

  const decision = decideLanguage(evidence);

  expect(decision).toEqual({ language: 'fr-CA', by: 'given', decided: true });
});

test.each([
  ['안녕하세요, 영업시간이 어떻게 되나요?', 'ko'],
  ['iPhone 15 の価格は?', 'ja'],
  ['请问几点开门', 'zh'],
  ['ราคาเท่าไหร่', 'th'],
  ['Πόσο κοστίζει;', 'el'],
  ['כמה זה עולה', 'he'],
  ['گارانتی چقدر است', 'fa'],
  ['یہ کتنے کا ہے', 'ur'],
  ['Скільки коштує доставка і коли її чекати?', 'uk'],
  ['Где мой заказ? Вы открыты?', 'ru'],
  ['Колико кошта испорука за Њујорк', 'sr'],
  ['किंमत किती आहे', 'mr'],
])('the script and its letters show the language of %s', (message, expected) => {
  const decision = decideLanguage({ message });

  expect(decision).toMatchObject({ language: expected, decided: true });
});

test.each(['MacBook Pro', 'iPhone 15 Pro Max 256GB', 'RTX 4090 Ti', 'tracking 1Z999AA10123456784', 'VAT DE123456789'])(
  '%s is a name or a code, and keeps the language of the conversation or the assistant',
  (message) => {
    const allowed = ['en', 'de'];

    expect(decideLanguage({ message, allowed })).toMatchObject({ language: 'en', decided: false });
    expect(decideLanguage({ message, allowed, previous: 'de' })).toMatchObject({ language: 'de', decided: false });
    expect(decideLanguage({ message, allowed, previous: 'fr' })).toMatchObject({ language: 'fr', decided: false });
  },
);

test.each(['Nespresso Vertuo Plus', 'Tesla Model Y'])(
  '%s is a name with a small word of another language',
  (message) => {
    expect(decideLanguage({ message, allowed: ['en', 'de'] })).toMatchObject({ language: 'en', decided: false });
  },
);

test('names in a sentence do not hide its language', () => {
  const allowed = ['en', 'de'];
  const languages = [
    'Combien coûte le MacBook Pro ?',
    'WO IST MEIN PAKET?',
    'Est-ce que le RTX 4090 est en stock ?',
  ].map((message) => decideLanguage({ message, allowed }).language);

  expect(languages).toEqual(['fr', 'de', 'fr']);
});

test('one greeting is enough if it belongs to a single language', () => {
  const greetings = ['Bonjour!', 'obrigado', 'dzień dobry', 'köszönöm', 'teşekkürler', 'cảm ơn'];

  const languages = greetings.map((message) => decideLanguage({ message }).language);

  expect(languages).toEqual(['fr', 'pt', 'pl', 'hu', 'tr', 'vi']);
});

test.each([
  ['доброго дня', 'uk'],
  ['Доброго дня!', 'uk'],
  ['добрий день', 'uk'],
  ['добридень', 'uk'],
  ['добрий вечір', 'uk'],
  ['доброго вечора', 'uk'],
  ['гарного вечора', 'uk'],
  ['доброго ранку', 'uk'],
  ['добрый день', 'ru'],
  ['добрый вечер', 'ru'],
  ['доброго вечера', 'ru'],
  ['доброго утра', 'ru'],
  ['доброй ночи', 'ru'],
  ['доброе утро', 'ru'],
  ['доброго дня, сколько стоит доставка?', 'ru'],
  ['добър ден', 'bg'],
  ['добар дан', 'sr'],
  ['добры дзень', 'be'],
])('"%s" is distinguished from similar languages: %s', (message, expected) => {
  expect(decideLanguage({ message })).toMatchObject({ language: expected, decided: true });
});

test('a message that shows no language keeps the language of the conversation', () => {
  const empty = ['👍', '12345', 'ok', 'https://example.com/hallo', 'me@example.com'];

  const decisions = empty.map((message) => decideLanguage({ message, previous: 'de-CH', allowed: ['en', 'de'] }));

  for (const decision of decisions) expect(decision).toEqual({ language: 'de-CH', by: 'previous', decided: false });
});

test('a borrowed word does not change the language of the conversation', () => {
  const decision = decideLanguage({ message: 'Merci, ciao!', previous: 'de' });

  expect(decision).toMatchObject({ language: 'de', decided: false });
});

test('a whole sentence in another language changes the language of the conversation', () => {
  const decision = decideLanguage({
    message: 'Quiero cambiar mi cita, por favor',
    previous: 'en',
    allowed: ['en', 'de'],
  });

  expect(decision).toMatchObject({ language: 'es', decided: true });
});

test('without evidence, the language is the assistant’s first one, or English', () => {
  const spoken = decideLanguage({ message: '???', allowed: ['nl', 'en'] });
  const unknown = decideLanguage({ message: '???' });

  expect(spoken).toEqual({ language: 'nl', by: 'default', decided: false });
  expect(unknown).toEqual({ language: 'en', by: 'default', decided: false });
});

test('the result has the language tag of the assistant or the conversation', () => {
  const byAssistant = decideLanguage({ message: 'quero cancelar o meu pedido', allowed: ['en', 'pt-BR'] });
  const norwegian = decideLanguage({ message: 'Jeg trenger hjelp med pakken', allowed: ['nb'] });
  const byConversation = decideLanguage({ message: 'wann habt ihr geöffnet', previous: 'de-AT', allowed: ['de'] });

  expect(byAssistant.language).toBe('pt-BR');
  expect(norwegian.language).toBe('nb');
  expect(byConversation.language).toBe('de-AT');
});

test('hostile and very long messages get the same result every time', () => {
  const messages = [
    '',
    '\0',
    '$salt',
    '__proto__ constructor toString',
    '😀'.repeat(8000),
    'a@'.repeat(4000),
    '\ud800'.repeat(50),
    'ä'.repeat(8000),
  ];

  const first = messages.map((message) => decideLanguage({ message }));
  const second = messages.map((message) => decideLanguage({ message }));

  expect(second).toEqual(first);
  for (const { language } of first) expect(language).toMatch(/^[a-z]{2,3}/);
});

test('the lexicon greets, thanks and answers in at least 25 languages', () => {
  const complete = Object.values(LEXICON).filter((entry) =>
    Object.values(entry).every((list) => list.split('|').length >= 3),
  );

  expect(complete.length).toBeGreaterThanOrEqual(25);
});

test('at least 95 of 100 short chat messages get the right language', () => {
  const report = loadChatMessages().filter(({ half }) => half === 'report');

  const right = measureLanguage(report).filter((each) => each.right).length;

  expect(right / report.length).toBeGreaterThanOrEqual(0.95);
});
