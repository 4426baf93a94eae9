import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import {
  asksForHuman,
  asksWhoThisIs,
  askedBesideContactDetails,
  findContactDetails,
  withoutContactDetails,
} from '../src/retrieval/human-request.ts';

const REQUESTS: Record<string, string[]> = {
  en: [
    'I want to talk to a human',
    'agent',
    'can I speak with someone?',
    'human please',
    'give me a real person',
    "I don't want to talk to a bot",
  ],
  de: ['ich möchte mit einem Menschen sprechen', 'Mitarbeiter bitte', 'Ich will nicht mit einem Bot reden'],
  fr: ['je veux parler à un conseiller', "parler à quelqu'un"],
  es: ['quiero hablar con una persona', 'un agente por favor'],
  pt: ['quero falar com um atendente'],
  it: ['voglio parlare con un operatore'],
  nl: ['ik wil een medewerker spreken'],
  ca: ['vull parlar amb una persona'],
  ro: ['vreau să vorbesc cu un operator'],
  sv: ['jag vill prata med en människa'],
  da: ['jeg vil tale med en medarbejder'],
  no: ['jeg vil snakke med et menneske'],
  fi: ['haluan puhua ihmisen kanssa'],
  et: ['tahan rääkida inimesega'],
  lv: ['gribu runāt ar cilvēku'],
  lt: ['noriu pakalbėti su žmogumi'],
  pl: ['chcę rozmawiać z konsultantem'],
  cs: ['chci mluvit s člověkem'],
  sk: ['chcem hovoriť s človekom'],
  sl: ['želim govoriti s človekom'],
  hr: ['želim razgovarati s osobom'],
  sr: ['желим да разговарам са човеком'],
  hu: ['szeretnék egy ügyintézővel beszélni'],
  tr: ['bir insanla konuşmak istiyorum'],
  el: ['θέλω να μιλήσω με άνθρωπο'],
  ru: ['хочу поговорить с человеком', 'позовите оператора'],
  uk: ['хочу поговорити з людиною'],
  bg: ['искам да говоря с човек'],
  ar: ['أريد التحدث مع شخص'],
  fa: ['می‌خواهم با یک نفر صحبت کنم'],
  ur: ['میں کسی انسان سے بات کرنا چاہتا ہوں'],
  he: ['אני רוצה לדבר עם נציג'],
  hi: ['मुझे किसी इंसान से बात करनी है'],
  id: ['saya mau bicara dengan manusia'],
  ms: ['saya nak bercakap dengan ejen'],
  fil: ['gusto kong makausap ang isang tao'],
  vi: ['tôi muốn nói chuyện với nhân viên'],
  th: ['ขอคุยกับเจ้าหน้าที่'],
  ko: ['상담원 연결해 주세요'],
  ja: ['担当者と話したい', 'オペレーターにつないでください'],
  zh: ['转人工', '轉真人客服'],
  sw: ['nataka kuongea na mtu'],
  af: ['ek wil met iemand praat'],
};

test.each(Object.entries(REQUESTS))('requests for a person are recognised in %s', (_language, messages) => {
  const missed = messages.filter((message) => !asksForHuman(message));

  expect(missed).toEqual([]);
});

test.each([
  'Bitte keinen Mitarbeiter, nur die Öffnungszeiten',
  'Ich möchte keinen Mitarbeiter sprechen',
  'No agent please',
  'no human, just tell me the price',
  'I want an answer, not an agent',
  '我不想转人工',
  '不要人工客服',
  'オペレーターは不要です',
  '상담원 말고 답만 주세요',
  'ไม่ต้องการคุยกับเจ้าหน้าที่',
  'sans conseiller, merci',
  'sin agente, por favor',
  'geen medewerker alstublieft',
  'без оператора, пожалуйста',
  'nie potrzebuję konsultanta, bez konsultanta',
  "please don't transfer me to an agent",
  'do not connect me with anyone',
  'Verbinden Sie mich nicht mit einem Mitarbeiter',
  'Ich brauche keinen Menschen',
  'inutile de me transférer à un conseiller',
  'sans passer par un humain',
  'müşteri temsilcisine bağlanmak istemiyorum',
  'मुझे एजेंट से बात नहीं करनी',
  'オペレーターと話したくありません',
  "I don't want to talk to a human, the bot is fine",
  'Can I cancel without talking to an agent?',
])('%s refuses a person', (message) => {
  expect(asksForHuman(message)).toBe(false);
});

test.each([
  'No, an agent please',
  'no! human',
  'I get no answer, I want to talk to a human',
  'Kein Bot, ein Mensch bitte',
  'no bot human please',
  'real person pls not AI',
  'Ich möchte keinen Bot sondern einen Mitarbeiter',
  'bot değil insan istiyorum',
  'لا أريد روبوت أريد موظف',
  'nie bot, człowiek proszę',
  "I don't want to wait, get me an agent",
  "I don't want this get me a human",
  'is there no human I can talk to?',
  'kann ich nicht mit einem Menschen reden?',
])('%s asks for a person although it says no', (message) => {
  expect(asksForHuman(message)).toBe(true);
});

test.each([
  "I don't understand, agent please",
  'je ne comprends pas, un conseiller svp',
  'non ho capito, operatore',
  'Geht nicht. Mitarbeiter!',
  'わかりません、オペレーターお願いします',
  'Human, please. Do not send me links',
  'human human human',
  'talk to human no more bots',
  'Could you kindly put me through to one of your colleagues?',
  'kann mich jemand anrufen',
  'I want to talk to an agent refund missing',
  'my colleagues tried it, now I want to speak to your staff',
  'I need an agent',
  'let me talk to staff about my discount',
  'Is there anybody there I can chat with?',
  'Ich will keinen Bot, sondern einen Menschen',
  'Ich brauche Hilfe von einem Mitarbeiter',
  'Kann ich mit einer Mitarbeiterin sprechen?',
  "Est-ce que quelqu'un peut me rappeler ?",
  "J'ai besoin de l'aide d'un humain",
  '¿Puede llamarme alguien?',
  'Necesito ayuda de una persona real',
])('%s ends in a request for a person', (message) => {
  expect(asksForHuman(message)).toBe(true);
});

test('a mention of a person is not a request for one', () => {
  const messages = [
    'what is humanity',
    'do you use humane traps',
    'human resources department',
    'how do I contact the human resources department',
    'I want to talk about human rights',
    'human hair wigs',
    'I need someone to repair my bike',
    'how many people can I invite',
    "I don't want to talk to a human",
    'does my travel agent get a commission',
    'can I give my agent access',
    'mein mitarbeiter hat eine frage zum preis',
    'wie viele mitarbeiter kann ich einladen',
    '人工智能是什么',
    'quiero una persona para mi equipo de fútbol',
    'hablar español',
    'Rabatt für Studenten, Mitarbeiter?',
    'Do you have discounts for students, staff, agent?',
    'Does a human check the orders?',
    '人工草坪价格',
    'I spoke to an agent yesterday, when does my refund come?',
    'my colleagues need help from staff discount?',
    'Do I get help from agent commission rules?',
    'I need manager approval before I pay',
    'We need staff lockers, do you sell them?',
    'I need a travel agent',
    'I want to become an agent for your brand',
    'My colleagues want to speak English at work, do you have a course?',
    'Ich möchte Mitarbeiterrabatt',
    'Sprechen Ihre Mitarbeiter Englisch?',
    'Ich möchte Kundenberater werden',
    'Je voudrais devenir conseiller chez vous',
    'Necesito un agente de aduanas, ¿lo incluye el envío?',
    'Quiero ser agente de su marca',
    'ik wil medewerkerskorting',
  ];

  const mistaken = messages.filter(asksForHuman);

  expect(mistaken).toEqual([]);
});

const SENTENCES = readFileSync(new URL('../eval/people.tsv', import.meta.url), 'utf8')
  .trim()
  .split('\n')
  .slice(1)
  .map((line) => line.split('\t'));

test.each([
  ['tune', { asks: 31, mentions: 32 }],
  ['report', { asks: 20, mentions: 31 }],
])('those who want customer service or a real human are told from those who mention one: %s', (half, atLeast) => {
  const right = (kind: 'asks' | 'mentions'): number =>
    SENTENCES.filter(
      ([, inHalf, is, message = '']) => inHalf === half && is === kind && asksForHuman(message) === (kind === 'asks'),
    ).length;

  expect(right('asks')).toBeGreaterThanOrEqual(atLeast.asks);
  expect(right('mentions')).toBeGreaterThanOrEqual(atLeast.mentions);
});

test.each([
  'Please transfer me to customer service',
  'Gibt es hier einen echten Menschen?',
  'I want to contact customer support',
  'transfer my call to an agent',
  'Können Sie mich mit dem Support verbinden?',
])('%s asks for a person', (message) => {
  expect(asksForHuman(message)).toBe(true);
});

test.each([
  'How do I reach customer service?',
  'Can I transfer my booking to a colleague?',
  'Please do not transfer me to customer service',
  'Verbinden Sie mich nicht mit dem Support',
  'Gibt es hier Plätze für Menschen mit Hund?',
  'Is there a human resources department?',
])('%s asks for nobody', (message) => {
  expect(asksForHuman(message)).toBe(false);
});

test('"are you a robot?" is a question about the assistant, not a request for a person', () => {
  const messages = [
    'are you a human?',
    'Am I talking to a real person?',
    'Bist du ein Mensch?',
    'es-tu un robot ?',
    'ты бот?',
  ];

  const requests = messages.filter(asksForHuman);
  const questions = messages.filter(asksWhoThisIs);

  expect(requests).toEqual([]);
  expect(questions).toEqual(messages);
});

test.each([
  'Where is my parcel, order number 2024 1130 0917?',
  'Do you have the book ISBN 978-3-16-148410-0?',
  'Why does the server 192.168.100.200 not answer?',
  'It happened 24.12.2025 18:30',
  'Is 12 345 678 EUR too much?',
  'Was there a visit on 2025-12-24 18:30?',
  'My IBAN is DE89 3704 0044 0532 0130 00',
  'track 1Z 999 123 01 2345 6784 for me please',
  'Das Paket 340434161094 ist nicht da',
  'Bestellnr. 100200300',
  'Kundennummer 0800 123 456',
  'PO 4500123456 shipped?',
  '订单号 13800138000 到哪了',
  '伝票番号 1234-5678-9012',
  'номер заказа 123456789',
  'My mobile is broken, order 4500123456',
  'EUR 12.345.678',
  'CPF 123.456.789-09',
  'Version 10.0.19045.5131',
  'offen am 24.12. 25.12. 26.12.?',
  '9783161484100',
  'Zählerstand 0012345678',
  'The number is 4500123456, when does it come?',
  'Kundenkontakt, Auftragsnummer 0151 23456789',
  'git@github.com:foo/bar.git',
])('%s has no phone number', (message) => {
  expect(findContactDetails(message)).toBeNull();
  expect(withoutContactDetails(message)).toBe(message);
});

test.each([
  ['٠٥٠١٢٣٤٥٦٧', ' '],
  ['۰۹۱۲ ۳۴۵ ۶۷۸۹', ' '],
  ['You reach me at (030) 555 01 20, thanks', 'You reach me at  , thanks'],
  ['Call me: 612 345 678', 'Call me:  '],
  ['555 123 4567', ' '],
  ['+49 (0) 30 5550120. When are you open?', ' . When are you open?'],
  ['612345678', ' '],
  ['my number is 612 345 678', 'my number is  '],
  ['tel. 600 123 456', 'tel.  '],
  ['手机号：13800138000', '手机号: '],
  ['0170 – 1234567', ' '],
  ['Meine Nummer: 170 1234567', 'Meine Nummer:  '],
  ['Handynummer: 176 12345678', 'Handynummer:  '],
  ['Rückrufnummer 151 23456789', 'Rückrufnummer  '],
  ['telefoonnummer 612345678', 'telefoonnummer  '],
  ['My contact number is 151 23456789', 'My contact number is  '],
  ['Here is the number: 0151 23456789', 'Here is the number:  '],
  ['Nr: 0151 23456789', 'Nr:  '],
  ['cellphone number 555 123 4567', 'cellphone number  '],
  ['мой номер 912 345 67 89', 'мой номер  '],
  ['番号 090-1234-5678', '番号  '],
])('%s has a phone number', (message, rest) => {
  expect(findContactDetails(message)).toEqual({ email: false, phone: true });
  expect(withoutContactDetails(message)).toBe(rest);
});

test.each([
  ['eva@example.org - how much is shipping', 'how much is shipping'],
  ['eva@example.org do you ship to France', 'do you ship to France'],
  ['what are your opening hours eva@example.org', 'what are your opening hours'],
  ['My email is eva@example.org, and when do you open', 'and when do you open'],
  ['eva@example.org what is your address?', 'what is your address?'],
  ['I am eva@example.org, is your parking free?', 'is your parking free?'],
  ['meine Mail ist eva@example.org - was kostet der Versand', 'was kostet der Versand'],
  ['mon mail eva@example.org combien coûte la livraison', 'combien coûte la livraison'],
  ['eva@example.org cuánto cuesta el envío', 'cuánto cuesta el envío'],
  ['mój mail eva@example.org, ile kosztuje wysyłka', 'ile kosztuje wysyłka'],
  ['eva@example.org сколько стоит доставка', 'сколько стоит доставка'],
  ['eva@example.org kargo ne kadar', 'kargo ne kadar'],
  ['eva@example.org 运费多少钱', '运费多少钱'],
  ['eva@example.org 배송비가 얼마인가요', '배송비가 얼마인가요'],
  ['eva@example.org كم سعر الشحن', 'كم سعر الشحن'],
])('%s asks something beside contact details', (message, asked) => {
  expect(findContactDetails(message)).toEqual({ email: true, phone: false });
  expect(askedBesideContactDetails(message)).toBe(asked);
});

test.each([
  'Could you write to eva@example.org, please?',
  'Can you send your offer to eva@example.org?',
  'When will you call me back, 0170 1234567',
  'call me when you can, 0170 1234567',
  'Könnt ihr mich unter 0170 1234567 anrufen?',
  'Je peux être joint à eva@example.org ?',
  'Mi correo es eva@example.org, gracias',
  'Eva Muster, eva@example.org, Wien',
  '我的电话 13800138000 请给我打电话好吗',
])('%s asks nothing beside contact details', (message) => {
  expect(findContactDetails(message)).not.toBeNull();
  expect(askedBesideContactDetails(message)).toBeNull();
});

test.each([
  'Is hello@shop.example your address?',
  'Is your number still 030 5550120?',
  'Can I reach you at hello@shop.example?',
  'Ist das Ihre Nummer: 0800 1234567?',
  'Kann ich euch unter hello@shop.example erreichen?',
  'Est-ce que hello@shop.example est votre adresse ?',
  '¿Es hola@shop.example vuestra dirección?',
  'hello@shop.example sizin adresiniz mi?',
  'hello@shop.example是你们的邮箱吗？',
  'hello@shop.example はそちらのアドレスですか？',
])('%s asks about an address of the shop', (message) => {
  expect(findContactDetails(message)).toBeNull();
});

test('contact details beside a question about the address of the shop are the visitor’s', () => {
  const message = 'Is hello@shop.example your address? Mine is eva@example.org';

  expect(findContactDetails(message)).toEqual({ email: true, phone: false });
  expect(askedBesideContactDetails(message)).toBe('Is hello@shop.example your address?');
});
