import type { LoadSettings } from './settings.ts';

const LENGTH = 7_980;
const WORD_LENGTH = 6;
const TRIES = 3;

/** The first letter of a script and how many letters follow it. */
const SCRIPTS: Record<string, [first: number, letters: number]> = {
  Latin: [0x61, 26],
  'Latin with accents': [0xe0, 30],
  Cyrillic: [0x430, 32],
  Greek: [0x3b1, 24],
  Hebrew: [0x5d0, 27],
  Arabic: [0x628, 20],
  Devanagari: [0x915, 36],
  Thai: [0xe01, 46],
  Georgian: [0x10d0, 33],
  Hiragana: [0x3042, 80],
  Han: [0x4e00, 5_000],
  Hangul: [0xac00, 5_000],
  Gothic: [0x10330, 26],
  emoji: [0x1f600, 60],
};

/** The longest allowed text, of different words in one script. `spaced: false` makes one word of it. */
const textOf = ([first, letters]: [number, number], spaced: boolean): string => {
  let text = '';
  for (let at = 0; at < LENGTH; at += 1) {
    const isGap = spaced && at % (WORD_LENGTH + 1) === WORD_LENGTH;
    text += isGap ? ' ' : String.fromCodePoint(first + ((at * 7 + Math.floor(at / 31)) % letters));
  }
  return text;
};

type ScriptCost = { name: string; text: string; ms: number };

/** Measures how long the service takes for one message of the largest size, in each script. */
export const measureScripts = async ({
  port,
  apiKey,
}: Pick<LoadSettings, 'port' | 'apiKey'>): Promise<ScriptCost[]> => {
  const costs: ScriptCost[] = [];
  for (const [script, letters] of Object.entries(SCRIPTS)) {
    for (const spaced of [true, false]) {
      const text = textOf(letters, spaced);
      const name = spaced ? script : `${script}, one word`;
      let least = Number.POSITIVE_INFINITY;
      for (let attempt = 0; attempt < TRIES; attempt += 1) {
        const startedAt = performance.now();
        const response = await fetch(`http://127.0.0.1:${port}/api/v1/chat`, {
          method: 'POST',
          headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${apiKey}` },
          body: JSON.stringify({ session_id: `${name} ${attempt}`, message: `${text} ${attempt}` }),
        });
        if (!response.ok) throw new Error(`a message of 8,000 characters was answered with ${response.status}`);
        await response.arrayBuffer();
        least = Math.min(least, performance.now() - startedAt);
      }
      costs.push({ name, text, ms: least });
    }
  }
  return costs.toSorted((a, b) => b.ms - a.ms).slice(0, 5);
};

export const costliestText = ([first]: ScriptCost[]): string => first?.text ?? '';
