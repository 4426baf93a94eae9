import type { AssistantInput } from '../../src/assistants/assistant.ts';
import type { KnowledgeInput } from '../../src/assistants/knowledge/entry.ts';

type Entry = Pick<KnowledgeInput, 'question' | 'answer'> & Partial<KnowledgeInput>;

const ENTRIES: Entry[] = [
  {
    question: 'When are you open?',
    variants: ['What are your opening hours?', 'Are you open on Sunday?', 'How late are you open today?'],
    answer:
      'We are open Monday to Friday from 8 to 18 and on Saturday from 9 to 16. On Sundays and holidays we are closed.',
    actions: [{ label: 'Find the shop', type: 'link', payload: '/visit' }],
    tags: ['visit'],
  },
  {
    question: 'Where is your shop?',
    variants: ['What is your address?', 'How do I find you?', 'Is there parking?'],
    answer:
      'You find us at 12 Harbour Street, two minutes from the ferry pier. There are four parking spaces behind the house.',
    actions: [{ label: 'Map and directions', type: 'link', payload: '/visit#map' }],
    tags: ['visit'],
  },
  {
    question: 'What does delivery cost?',
    variants: ['How much is shipping?', 'Is delivery free?', 'Shipping costs'],
    answer: 'Delivery is 3.90 € within the country and free from 40 €. To other EU countries it is 8.90 €.',
    actions: [{ label: 'Delivery and costs', type: 'link', payload: '/delivery' }],
    tags: ['delivery'],
  },
  {
    question: 'How long does delivery take?',
    variants: ['When will my order arrive?', 'How fast do you ship?', 'Delivery time'],
    answer:
      'We roast on Tuesday and Thursday and ship the same day. It takes two working days, three to five within the EU.',
    tags: ['delivery'],
  },
  {
    question: 'Where is my order?',
    variants: ['How can I track my parcel?', 'My package has not arrived', 'Order status'],
    answer:
      'The tracking link is in the mail we send when your parcel leaves. If it has not moved for three days, tell us.',
    actions: [
      { label: 'Track my order', type: 'link', payload: '/orders' },
      { label: 'Ask a person', type: 'escalate', payload: 'order_missing' },
    ],
    tags: ['delivery'],
  },
  {
    question: 'How can I return something?',
    variants: ['What is your return policy?', 'I want my money back', 'Can I send coffee back?', 'Refund'],
    answer:
      'Send unopened bags and all equipment back within 30 days; we pay the way back and refund you within five days.',
    actions: [{ label: 'Print a return label', type: 'link', payload: '/returns' }],
    tags: ['returns'],
  },
  {
    question: 'How can I pay?',
    variants: ['Which payment methods do you accept?', 'Can I pay by credit card?', 'Do you take PayPal?'],
    answer: 'Online by card, PayPal or bank transfer; in the shop also in cash.',
    tags: ['payment'],
  },
  {
    question: 'How much does your coffee cost?',
    variants: ['What are your prices?', 'Price list', 'How much is a bag of espresso?'],
    answer: 'A 250 g bag is 8.50 € to 12 €, a kilogram 29 € to 42 €. Espresso and filter roasts cost the same.',
    actions: [{ label: 'All coffees', type: 'link', payload: '/coffee' }],
    tags: ['prices'],
  },
  {
    question: 'Do you have a subscription?',
    variants: ['Can I get coffee every month?', 'How do I cancel my subscription?', 'Subscribe'],
    answer:
      'Yes: every two or four weeks, 10 % off, delivery included. Pause or cancel it at any time in your account.',
    actions: [
      { label: 'See subscriptions', type: 'link', payload: '/subscribe' },
      { label: 'What does delivery cost?', type: 'reply', payload: 'What does delivery cost?' },
    ],
    tags: ['prices'],
  },
  {
    question: 'Do you grind the coffee?',
    variants: ['Can I order ground coffee?', 'Which grind for a French press?', 'Grinding'],
    answer:
      'Gladly and at no charge: choose espresso, filter or French press when you order. Whole beans stay fresh longer.',
    tags: ['coffee'],
  },
  {
    question: 'Do you have decaf?',
    variants: ['Is there coffee without caffeine?', 'Decaffeinated'],
    answer: 'Yes, a Colombian decaf, washed with sugar cane and free of solvents: mild, with notes of caramel.',
    actions: [{ label: 'Our decaf', type: 'link', payload: '/coffee/decaf' }],
    tags: ['coffee'],
  },
  {
    question: 'Do you sell gift cards?',
    variants: ['Gift voucher', 'I need a present', 'How long is a gift card valid?'],
    answer: 'Yes, from 20 €, by mail at once or on paper in the shop. They are valid for three years.',
    actions: [{ label: 'Buy a gift card', type: 'link', payload: '/gift-cards' }],
    tags: ['prices'],
  },
  {
    question: 'How can I contact you?',
    variants: ['What is your phone number?', 'What is your e-mail address?', 'Can I call you?'],
    answer: 'Call 555 0134 during opening hours or write to hello@harbour-roasters.example; we answer within a day.',
    actions: [
      { label: 'Call us', type: 'phone', payload: '+15550134' },
      { label: 'Write to us', type: 'email', payload: 'hello@harbour-roasters.example' },
      { label: 'Talk to a person', type: 'escalate', payload: 'user_requested' },
    ],
    tags: ['contact'],
  },
];

/** The demo assistant: an invented coffee roaster with questions and answers. */
export const SHOP = {
  assistant: { name: 'Harbour Roasters (demo)' } satisfies AssistantInput,
  knowledge: ENTRIES.map(
    (entry): KnowledgeInput => ({ variants: [], language: 'en', actions: [], tags: [], ...entry }),
  ),
  firstQuestion: 'What are your opening hours?',
};

/** Questions to the demo assistant that share hardly a word with the entries that answer them. */
export const MEANT_QUESTIONS = [
  'until when can I come by in the evening',
  'can I leave my car near you',
  'what will it be to have it sent to my flat',
  'I have been waiting for my beans for a week',
  'it tastes burnt and I do not like it, what now',
  'is it possible to settle the bill with my phone',
  'what do I pay for half a kilo',
  'could you send me some every few weeks',
  'I do not own a mill',
  'something that lets me sleep at night',
  'a birthday surprise for my mother',
  'who can I speak to about a business account',
];
