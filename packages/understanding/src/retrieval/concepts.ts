import { LRUCache } from 'lru-cache';
import SearchableMap from 'minisearch/SearchableMap';
import service from './concepts-service.json' with { type: 'json' };
import software from './concepts-software.json' with { type: 'json' };
import trade from './concepts-trade.json' with { type: 'json' };

/**
 * The words of each concept in all languages. `versand`, `shipping` and `envío` are one concept, so that synonyms and
 * other languages find an answer. Words are folded; `*` is any ending, `_` a space. A word belongs to the first concept
 * that lists it. `trade` has buying, paying, sending and returning. `service` has time, place, people, appointments and
 * health. `software` has accounts, plans, data and their problems.
 */
export const CONCEPTS: Readonly<Record<string, string>> = { ...trade, ...service, ...software };

/**
 * For each concept, the concepts that it often occurs with: a question about a car is often about parking. A related
 * concept counts less than a shared concept.
 */
const RELATED: Readonly<Record<string, readonly string[]>> = {
  time: ['hours'],
  day: ['hours'],
  today: ['hours'],
  where: ['place'],
  train: ['place'],
  car: ['parking'],
  medicine: ['prescription'],
  money: ['refund', 'price'],
  phone: ['app', 'contact'],
  doctor: ['appointment'],
  arrive: ['delivery', 'track'],
  parcel: ['delivery', 'order'],
  duration: ['time'],
  spreadsheet: ['file'],
  login: ['password', 'account'],
  vaccination: ['flu'],
  flu: ['vaccination'],
  used: [],
};

/** Concepts of question words. They have little weight, so that they can break a tie but not decide an answer. */
const WEAK_CONCEPTS = new Set(['time', 'where', 'today', 'what', 'item']);
const WEAK_SHARE = 0.4;
/** Concepts of verbs. They have less weight than nouns. */
const VERB_CONCEPTS = new Set([
  'sell',
  'buy',
  'create',
  'add',
  'change',
  'connect',
  'stop',
  'access',
  'keep',
  'forgot',
  'bring',
  'test',
  'used',
]);
const VERB_SHARE = 0.65;

/** How much a term with this concept, or without one, counts. */
export const conceptWeight = (concept: string | null): number => {
  if (concept === null) return 1;
  if (WEAK_CONCEPTS.has(concept)) return WEAK_SHARE;
  return VERB_CONCEPTS.has(concept) ? VERB_SHARE : 1;
};

export const relatedTo = (concept: string): readonly string[] => RELATED[concept] ?? [];

const exact = new Map<string, string>();
const beginnings = new Map<string, string>();
for (const [concept, list] of Object.entries(CONCEPTS)) {
  for (const entry of list.split(' ')) {
    const word = entry.replaceAll('_', ' ');
    const [table, key] = word.endsWith('*') ? [beginnings, word.slice(0, -1)] : [exact, word];
    if (!table.has(key)) table.set(key, concept);
  }
}
const longest = Math.max(...[...beginnings.keys()].map((beginning) => beginning.length));
const SHORTEST_BEGINNING = 2;

export const conceptOf = (word: string): string | null => {
  const known = exact.get(word);
  if (known) return known;
  for (let length = Math.min(word.length, longest); length >= SHORTEST_BEGINNING; length -= 1) {
    const found = beginnings.get(word.slice(0, length));
    if (found) return found;
  }
  return null;
};

/**
 * The concept of a whole phrase. The phrase must match completely, because beginnings would match too many word pairs.
 */
export const phraseConcept = (phrase: string): string | null => exact.get(phrase) ?? null;

const SHORTEST_FUZZY = 6;
const spelled = new SearchableMap<string>();
for (const [word, concept] of [...beginnings, ...exact]) {
  if (word.length >= SHORTEST_FUZZY - 1 && !word.includes(' ')) spelled.set(word, concept);
}
const NO_CONCEPT = '';
const guesses = new LRUCache<string, string>({ max: 5000 });

/**
 * The concept of a misspelt word. The word differs in one letter from a known word or a known
 * prefix.
 */
export const misspeltConcept = (word: string): string | null => {
  if (word.length < SHORTEST_FUZZY) return null;
  const known = guesses.get(word);
  if (known !== undefined) return known === NO_CONCEPT ? null : known;
  let guess = NO_CONCEPT;
  for (
    let length = word.length;
    guess === NO_CONCEPT && length >= Math.max(SHORTEST_FUZZY, word.length - 3);
    length -= 1
  ) {
    for (const [near, [concept]] of spelled.fuzzyGet(word.slice(0, length), 1)) {
      if (near.slice(0, 2) !== word.slice(0, 2) || near.length < SHORTEST_FUZZY - 1) continue;
      if (length < word.length && !beginnings.has(near)) continue;
      guess = concept;
      break;
    }
  }
  guesses.set(word, guess);
  return guess === NO_CONCEPT ? null : guess;
};
