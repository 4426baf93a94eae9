import { fold, words } from '../../../../src/turns/language/fold.ts';

/** Words that, one of `ask` and one of `person` together, ask for a human; `alone` does so by itself. */
const REQUESTS: Readonly<Record<string, { ask: string; person: string; alone: string }>> = {
  en: {
    ask: 'talk speak chat connect transfer reach call get want need give contact put',
    person: 'human person agent operator representative someone somebody advisor staff employee supervisor manager',
    alone:
      'human|agent|operator|representative|real person|live agent|human please|agent please|live chat|human agent|customer service|customer support',
  },
};
const tables = Object.values(REQUESTS).map(({ ask, person, alone }) => ({
  ask: new Set(ask.split(' ')),
  person: new Set(person.split(' ')),
  alone: new Set(alone.split('|')),
}));

export const asksForHuman = (message: string): boolean => {
  const tokens = words(fold(message.slice(0, 300))).slice(0, 24);
  const whole = tokens.join(' ');
  return tables.some(
    ({ ask, person, alone }) =>
      alone.has(whole) || (tokens.some((t) => ask.has(t)) && tokens.some((t) => person.has(t))),
  );
};
