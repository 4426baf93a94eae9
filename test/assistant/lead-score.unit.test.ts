import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { LEAD_RULES, scoreLead } from '../../src/replies/lead-score.ts';

const aTurn = (message: string, overrides: Partial<Parameters<typeof scoreLead>[0]> = {}) =>
  scoreLead({ previous: 0, explanation: [], message, turnNumber: 1, ...overrides });

test('a price, a company and an e-mail address raise the score, each with its reason', () => {
  const scored = aTurn('How much is it for our company? Write to jane@example.com');

  expect(scored).toEqual({
    score: 50,
    because: ['left an e-mail address', 'asked for a price', 'speaks for a company'],
  });
});

test.each([
  ['Ich will das kaufen', 'wants to buy'],
  ['je voudrais acheter ce vélo', 'wants to buy'],
  ['хочу купить', 'wants to buy'],
  ['我想购买', 'wants to buy'],
  ['¿cuánto cuesta?', 'asked for a price'],
  ['料金はいくらですか', 'asked for a price'],
  ['ne kadar', 'asked for a price'],
  ['darf ich es ausprobieren', 'asked for a demo or a trial'],
  ['quero uma demonstração', 'asked for a demo or a trial'],
])('intent is recognised in many languages: %s', (message, reason) => {
  const scored = aTurn(message);

  expect(scored.because).toContain(reason);
});

test('a signal counts only once', () => {
  const first = aTurn('what does it cost?');

  const second = aTurn('and what does shipping cost?', { previous: first.score, explanation: first.because });

  expect(second).toEqual(first);
});

test('more turns raise the score step by step', () => {
  const third = aTurn('hm', { turnNumber: 3 });
  const tenth = aTurn('hm', { turnNumber: 10, previous: third.score, explanation: third.because });

  expect(third).toEqual({ score: 5, because: ['stayed for 3 turns'] });
  expect(tenth.score).toBe(15);
});

test('everyday questions do not raise the score', () => {
  const messages = [
    'hi',
    'where is my order',
    'I forgot my password',
    'this is pretty good, probably',
    'wann habt ihr offen',
  ];

  const scores = messages.map((message) => aTurn(message).score);

  expect(scores).toEqual([0, 0, 0, 0, 0]);
});

test('a score set by an operator is the base of later increases', () => {
  const scored = aTurn('call me: 0171 2345678', { previous: 7, explanation: ['wants to buy'] });

  expect(scored).toEqual({ score: 27, because: ['wants to buy', 'left a phone number'] });
});

test('a score is an integer from 0 to 100 that never falls', () => {
  const turns = fc.property(
    fc.integer({ min: 0, max: 100 }),
    fc.subarray(LEAD_RULES.map(({ because }) => because)),
    fc.oneof(
      fc.string({ unit: 'binary', maxLength: 200 }),
      fc.constantFrom('buy', 'price', 'demo', 'a@b.co', '😀'.repeat(8000)),
    ),
    fc.integer({ min: 1, max: 1000 }),
    (previous, explanation, message, turnNumber) => {
      const { score, because } = scoreLead({ previous, explanation, message, turnNumber });
      expect(Number.isInteger(score)).toBe(true);
      expect(score).toBeGreaterThanOrEqual(previous);
      expect(score).toBeLessThanOrEqual(100);
      expect(because.slice(0, explanation.length)).toEqual(explanation);
    },
  );

  fc.assert(turns);
});
