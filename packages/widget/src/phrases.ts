import table from './phrases.json' with { type: 'json' };

const NAMES = [
  'open',
  'close',
  'placeholder',
  'send',
  'greeting',
  'writing',
  'person',
  'away',
  'offline',
  'notSent',
  'retry',
  'earlier',
  'you',
  'team',
  'reload',
  'messages',
] as const;

export type Phrases = Record<(typeof NAMES)[number], string>;

const TABLE: Record<string, string> = table;
const SAME: Record<string, string> = { nb: 'no', nn: 'no', iw: 'he', in: 'id', tl: 'en' };
const TRADITIONAL = /^zh-(?:hant|tw|hk|mo)\b/i;

const keyOf = (tag: string): string => {
  if (TRADITIONAL.test(tag)) return 'zh-Hant';
  const base = tag.split(/[-_]/)[0]?.toLowerCase() ?? '';
  return SAME[base] ?? base;
};

/** The first of these languages that has phrases. The tag is kept, because it says how times are written. */
export const speak = (wanted: (string | null | undefined)[]): { tag: string; rightToLeft: boolean; say: Phrases } => {
  const tag = wanted.find((one) => one && Object.hasOwn(TABLE, keyOf(one))) ?? 'en';
  const texts = (TABLE[keyOf(tag)] as string).split('|');
  return {
    tag,
    rightToLeft: ['ar', 'fa', 'he', 'ur'].includes(keyOf(tag)),
    say: Object.fromEntries(NAMES.map((name, at) => [name, texts[at]])) as Phrases,
  };
};
