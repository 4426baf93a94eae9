/** What a word means whatever the language: `versand`, `shipping` and `envío` are one concept. Words ending in `*` match by beginning. */
const CONCEPTS: Readonly<Record<string, string>> = {
  price: 'price* cost* preis* kosten kostet prix precio* cuesta',
};

const exact = new Map<string, string>();
const beginnings = new Map<string, string>();
const phrases = new Map<string, string>();
const SHORTEST_BEGINNING = 3;
for (const [concept, list] of Object.entries(CONCEPTS)) {
  for (const entry of list.split(' ')) {
    const word = entry.replaceAll('_', ' ');
    if (word.endsWith('*')) beginnings.set(word.slice(0, -1), concept);
    else (word.includes(' ') ? phrases : exact).set(word, concept);
  }
}

export const phraseConcept = (phrase: string): string | null => phrases.get(phrase) ?? null;

export const conceptOf = (word: string): string | null => {
  const known = exact.get(word);
  if (known) return known;
  for (let length = word.length; length >= SHORTEST_BEGINNING; length -= 1) {
    const found = beginnings.get(word.slice(0, length));
    if (found) return found;
  }
  return null;
};
