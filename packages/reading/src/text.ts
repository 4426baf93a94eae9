/** The longest passage. A sentence is cut only if it alone is longer. */
export const MAX_PASSAGE_CHARS = 900;
/** Bounds the work of the segmenter, whose rules look ahead. */
const SEGMENTED_AT_ONCE = 20_000;

/** A document that is beyond a limit or cannot be read. The reader turns it into a failure for the owner. */
export class Unreadable extends Error {
  readonly failed: 'unsupported' | 'too_large' | 'damaged' | 'encrypted' | 'no_text';

  constructor(failed: Unreadable['failed'], message: string) {
    super(message);
    this.failed = failed;
  }
}

export const unsupported = (what: string): Unreadable =>
  new Unreadable(
    'unsupported',
    `This is ${what}. Use a web page, or a file in Markdown, HTML, plain text, PDF or DOCX`,
  );

/** True for the errors of V8 about a text, list or buffer that would be too large. */
export const isOfMemory = (cause: unknown): boolean =>
  cause instanceof RangeError &&
  /Invalid (?:string|array|typed array) length|Array buffer allocation/.test(cause.message);

// Control characters, soft hyphens, zero-width spaces, and marks that reverse the order of letters. Joiners are kept,
// because emoji and Persian need them.
const INVISIBLE =
  // oxlint-disable-next-line no-control-regex -- they are what it removes
  /[\u0000-\u0008\u000e-\u001f\u007f-\u009f\u00ad\u200b\u2060\ufeff\u202a-\u202e\u2066-\u2069\ufffe\uffff]+/g;

/** The glyphs of icon fonts. Where a font has its bullets among them, they are bullets. */
const GLYPHS = /\p{Co}/gu;
const BULLETS = /[\uf0a7\uf0b7\uf0d8]/g;

export const withoutInvisible = (text: string): string =>
  text.toWellFormed().replace(INVISIBLE, '').replace(BULLETS, '•').replace(GLYPHS, '');

/** Liquid, Jekyll, Hugo, Handlebars, Vue; comments of Jinja; ERB; template strings; WordPress's short codes. */
const TEMPLATES =
  /\{\{\{?[^{}]{0,500}\}\}\}?|\{%[^%{}]{0,500}%\}|\{#[^#{}]{0,500}#\}|<%[^%<>]{0,500}%>|\$\{[\w.]{1,100}\}|\[\/[a-z][\w-]{2,50}\]|\[[a-z][\w-]{2,50} [\w-]{1,50}=["'][^\]\n]{0,500}\]/g;

/** Text without what a site generator or a script would fill in. */
export const withoutTemplates = (text: string): string => text.replace(TEMPLATES, '');

/** Whether a text ends with a question mark, of whatever script. */
export const asksSomething = (text: string): boolean => /[?？؟]$/.test(text);

/** One line without leading, trailing and repeated spaces. */
export const toLine = (text: string): string => withoutInvisible(text).replace(/\s+/g, ' ').trim();

/** Lines without leading, trailing and repeated spaces; empty lines are left out. */
export const toLines = (text: string): string =>
  withoutInvisible(text)
    .split(/[\n\u2028\u2029]/)
    .map((line) => line.replace(/\s+/g, ' ').trim())
    .filter((line) => line !== '')
    .join('\n');

/** Whether words of this script follow each other without a space. */
const UNSPACED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}、。，！？：；（）「」]/u;

/** Joins the lines of a paragraph that was broken to fit a page. */
export const joinBrokenLines = (lines: readonly string[]): string => {
  let text = '';
  for (const line of lines) {
    if (text === '') text = line;
    else if (/\p{L}-$/u.test(text.slice(-3)) && /^\p{Ll}/u.test(line)) text = text.slice(0, -1) + line;
    else if (UNSPACED.test(text.slice(-1)) && UNSPACED.test(line.slice(0, 1))) text += line;
    else text += ` ${line}`;
  }
  return text;
};

/** The language tag in its usual form, or null if it is none. */
export const toLanguage = (tag: string | null | undefined): string | null => {
  const trimmed = tag?.trim().replaceAll('_', '-') ?? '';
  if (trimmed === '' || trimmed.length > 35) return null;
  try {
    return Intl.getCanonicalLocales(trimmed)[0] ?? null;
  } catch {
    return null;
  }
};

// A sentence does not end after these, though the segmenter says so before a capital letter.
const ABBREVIATED =
  /(?:^|[\s(„“"'-])(?:\p{L}|\p{L}\.\s?\p{L}|Dr|Mr|Mrs|Ms|Mme|Prof|Nr|No|St|Str|Tel|Art|Abs|Abb|Fig|Vol|approx|bzw|ca|etc|inkl|exkl|ggf|evtl|vgl|vs|Sr|Sra|Inc|Ltd|Co|Corp|Jan|Feb|Aug|Sept|Oct|Okt|Nov|Dec|Dez|núm|pág|tél|env|max|min|mind)\.\s*$/iu;
const ENDS_INSIDE = /\p{Sentence_Terminal}\P{Sentence_Terminal}|\n/u;
const NUMBERED = /^\(?[\p{L}\p{N}]{1,3}[.)]\s*$/u;

const segmentersOf = (language: string | null): { sentence: Intl.Segmenter; word: Intl.Segmenter } => ({
  sentence: new Intl.Segmenter(language ?? 'en', { granularity: 'sentence' }),
  word: new Intl.Segmenter(language ?? 'en', { granularity: 'word' }),
});

/** Where to cut a text that has no space near the limit: between words, or else between characters. */
const cutWithoutSpace = (window: string, at: number, word: Intl.Segmenter): number => {
  const start = word.segment(window).containing(at)?.index ?? 0;
  if (start > at / 2) return start;
  const low = window.charCodeAt(at);
  return low >= 0xdc00 && low <= 0xdfff ? at - 1 : at;
};

export type Splitter = (text: string) => string[];

/** Splits text into sentences of at most {@link MAX_PASSAGE_CHARS} characters, in any language. */
export const createSplitter = (language: string | null): Splitter => {
  const { sentence, word } = segmentersOf(language);

  const cut = (long: string): string[] => {
    const parts: string[] = [];
    let rest = long;
    while (rest.length > MAX_PASSAGE_CHARS) {
      const space = rest.lastIndexOf(' ', MAX_PASSAGE_CHARS);
      const at =
        space > MAX_PASSAGE_CHARS / 2
          ? space
          : cutWithoutSpace(rest.slice(0, MAX_PASSAGE_CHARS + 100), MAX_PASSAGE_CHARS, word);
      parts.push(rest.slice(0, at).trim());
      rest = rest.slice(at).trimStart();
    }
    if (rest !== '') parts.push(rest);
    return parts;
  };

  const sentencesOf = (line: string): string[] => {
    const found: string[] = [];
    let open = '';
    for (const { segment } of sentence.segment(line)) {
      open += segment;
      const tail = open.slice(-24);
      if (open.length < MAX_PASSAGE_CHARS && (ABBREVIATED.test(tail) || NUMBERED.test(open.slice(0, 8)))) continue;
      found.push(open.trim());
      open = '';
    }
    if (open.trim() !== '') found.push(open.trim());
    return found;
  };

  return (text) => {
    // This is enough for most rows and items. A segmenter takes a hundred times as long, and memory that V8 does not
    // see.
    if (text.length <= MAX_PASSAGE_CHARS && !ENDS_INSIDE.test(text)) return text.trim() === '' ? [] : [text.trim()];
    const found: string[] = [];
    for (let at = 0; at < text.length; ) {
      let end = Math.min(text.length, at + SEGMENTED_AT_ONCE);
      const space = end < text.length ? text.lastIndexOf(' ', end) : -1;
      if (space > at) end = space;
      else if (end < text.length) end = at + cutWithoutSpace(text.slice(at, end + 1), end - at, word);
      for (const one of sentencesOf(text.slice(at, end))) {
        if (one.length > MAX_PASSAGE_CHARS) found.push(...cut(one));
        else if (one !== '') found.push(one);
      }
      at = end;
    }
    return found;
  };
};
