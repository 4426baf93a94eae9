const ANY_ENDING = '*';
const LETTER = /[\p{L}\p{N}_]/u;

/** Which step of which pattern an entry of the trie completes, and what must follow the entry in the text. */
type StepEnd = { pattern: number; step: number; ending: 'edge' | 'word' | 'anywhere' };
type Node = { next: Map<number, Node>; anyEnding: Node | null; stepEnds: StepEnd[] };

/**
 * Steps that must occur one after another, with at most `reach` characters between two steps. Each step is a list of
 * words, one of which must occur.
 */
export type ProximityPattern = { steps: string[]; reach: number };

const createNode = (): Node => ({ next: new Map(), anyEnding: null, stepEnds: [] });

/** The character codes of a–z, digits and `_`. Scanned text is already folded. */
const LATIN = Uint8Array.from({ length: 128 }, (_, code) => Number(/[a-z0-9_]/.test(String.fromCharCode(code))));
const isLatinAt = (text: string, at: number): boolean => LATIN[text.charCodeAt(at)] === 1;

const addEntry = (root: Node, entry: string, stepEnds: Omit<StepEnd, 'ending'>): void => {
  let node = root;
  const open = entry.endsWith(ANY_ENDING);
  const chars = open ? entry.slice(0, -1) : entry;
  for (let at = 0; at < chars.length; at += 1) {
    if (chars[at] === ANY_ENDING) node = node.anyEnding ??= createNode();
    else {
      const code = chars.charCodeAt(at);
      const next = node.next.get(code) ?? createNode();
      node.next.set(code, next);
      node = next;
    }
  }
  const ending = open ? 'word' : isLatinAt(chars, chars.length - 1) ? 'edge' : 'anywhere';
  node.stepEnds.push({ ...stepEnds, ending });
};

const build = (patterns: readonly ProximityPattern[]): Node => {
  const root = createNode();
  for (const [pattern, { steps }] of patterns.entries()) {
    for (const [step, list] of steps.entries()) {
      for (const entry of list.split(' '))
        addEntry(root, entry.replaceAll('_', ' ').normalize('NFC'), { pattern, step });
    }
  }
  return root;
};

const endOfWord = (text: string, from: number): number => {
  let at = from;
  while (isLatinAt(text, at)) at += 1;
  return at;
};

/** Finds the end of a word. The end is cached, so that a long word is read once. */
const createEndOfLetters = (text: string): ((from: number) => number) => {
  let known = { from: 0, end: -1 };
  return (from) => {
    if (from >= known.from && from <= known.end) return known.end;
    let end = from;
    while (LETTER.test(text.charAt(end))) end += 1;
    known = { from, end };
    return end;
  };
};

/**
 * Scans a folded text once, in linear time. A trie of all entries is followed from each position, and each pattern
 * keeps only the matches that its next step can still reach. A regular expression would try every pair of words. In an
 * entry, `_` is a space and `*` any ending. Latin entries match whole words; entries in other scripts match anywhere.
 * Returns the index of the first matching pattern of the list, or null.
 */
export const createScanner = (patterns: readonly ProximityPattern[]): ((text: string) => number | null) => {
  const root = build(patterns);

  return (text) => {
    const reached: number[][][] = [];
    const endOfLetters = createEndOfLetters(text);
    let first: number | null = null;

    const record = ({ pattern, step }: StepEnd, start: number, end: number): void => {
      const near = patterns[pattern];
      if (!near || (first !== null && first <= pattern)) return;
      const ends = (reached[pattern] ??= near.steps.map(() => []));
      if (step > 0) {
        const before = (ends[step - 1] ?? []).filter((one) => one + near.reach >= start);
        ends[step - 1] = before;
        if (!before.some((one) => one <= start)) return;
      }
      if (step === near.steps.length - 1) first = pattern;
      else ends[step] = [...(ends[step] ?? []).filter((one) => one + near.reach >= start), end];
    };

    const follow = (from: Node, start: number, begin: number): void => {
      let at = begin;
      for (let node: Node | undefined = from; node; node = node.next.get(text.charCodeAt(at)), at += 1) {
        for (const stepEnds of node.stepEnds) {
          if (stepEnds.ending === 'edge' && isLatinAt(text, at)) continue;
          record(stepEnds, start, stepEnds.ending === 'word' ? endOfWord(text, at) : at);
        }
        if (node.anyEnding) follow(node.anyEnding, start, endOfLetters(at));
      }
    };

    let inWord = false;
    for (let start = 0; start < text.length && first !== 0; start += 1) {
      const wasInWord = inWord;
      inWord = isLatinAt(text, start);
      if (inWord && wasInWord) continue;
      const node = root.next.get(text.charCodeAt(start));
      if (node) follow(node, start, start + 1);
    }
    return first;
  };
};
