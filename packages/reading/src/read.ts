import { analyse } from 'chardet';
import { detect } from 'tinyld';
import { findMainText } from './main-text.ts';
import { emptyDocument, type HtmlDocument, parseHtml } from './html.ts';
import { type Contents, type TextBlock, toPassages, toSections } from './passages.ts';
import { findProposals, isQuestion } from './proposals.ts';
import type { ReadInput, ReadPage } from './reading.ts';
import {
  createSplitter,
  joinBrokenLines,
  toLanguage,
  toLine,
  unsupported,
  Unreadable,
  withoutTemplates,
} from './text.ts';

// From bytes to passages, inside the process that only reads. Some formats have libraries that are loaded with their first
// document.

const MAX_LINKS = 5_000;
const MAX_LINK_CHARS = 2048;
const MAX_TITLE_CHARS = 200;
/** Fewer letters may look like any language. Twice as many are needed to overrule the declared language. */
const LEAST_FOR_LANGUAGE = 50;
const MOST_FOR_LANGUAGE = 2000;
const LEAST_PIECE = 20;
const SNIFFED_BYTES = 1024;

type Format = 'html' | 'markdown' | 'text' | 'pdf' | 'docx';

const startsWith = (bytes: Uint8Array, ...values: number[]): boolean =>
  values.every((value, at) => bytes[at] === value);

const latinOf = (bytes: Uint8Array, most: number): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(most, bytes.length)).toString('latin1');

const MEDIA: readonly [RegExp, string][] = [
  [/^image\//, 'a picture'],
  [/^audio\//, 'a sound'],
  [/^video\//, 'a video'],
  [/spreadsheet|excel|text\/csv|tab-separated/, 'a table'],
  [/presentation|powerpoint/, 'a presentation'],
  [/json|javascript|ecmascript|text\/css|application\/xml|text\/xml|rss|atom/, 'data for programs'],
];

/** What the first bytes say. They are trusted more than the type that a server sends or the end of a name. */
const sniffed = (bytes: Uint8Array): Format | null => {
  const start = latinOf(bytes, SNIFFED_BYTES);
  if (start.includes('%PDF-')) return 'pdf';
  if (start.startsWith('PK\u0003\u0004')) return 'docx';
  if (startsWith(bytes, 0xd0, 0xcf, 0x11, 0xe0)) throw oldOffice(bytes);
  if (/^(?:\u0089PNG|GIF8|\u00ff\u00d8\u00ff|RIFF|BM.{4}\0|II\*\0|MM\0\*)/s.test(start)) throw unsupported('a picture');
  if (startsWith(bytes, 0x1f, 0x8b) || /^(?:7z\u00bc|Rar!|BZh|\u00fd7zXZ)/.test(start))
    throw unsupported('a packed archive');
  if (/^(?:\u007fELF|MZ.{60}|\u00ca\u00fe\u00ba\u00be|\u00cf\u00fa\u00ed\u00fe)/s.test(start))
    throw unsupported('a program');
  if (start.startsWith('{\\rtf')) throw unsupported('an RTF document');
  const text = start
    .replaceAll('\0', '')
    .replace(/^(?:\u00ef\u00bb\u00bf|\u00ff\u00fe|\u00fe\u00ff)/, '')
    .trimStart();
  if (/^(?:<\?xml[^>]{0,200}>\s*)?(?:<!--[^>]{0,500}-->\s*)?(?:<!doctype html|<html|<head|<body)/i.test(text))
    return 'html';
  if (/^(?:<\?xml[^>]{0,200}>\s*)?(?:<!doctype svg|<svg)/i.test(text)) throw unsupported('a picture');
  return null;
};

/** The failure for Word's older format, which is also the wrapping of an encrypted DOCX. */
const oldOffice = (bytes: Uint8Array): Unreadable =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).includes(Buffer.from('EncryptedPackage', 'utf16le'))
    ? new Unreadable('encrypted', 'This document has a password. Save it without one, and add it again')
    : new Unreadable(
        'unsupported',
        'This is a document of an old version of Word or Office. Save it as DOCX or PDF, and add it again',
      );

const formatOf = ({ bytes, contentType, name }: ReadInput): Format => {
  const found = sniffed(bytes);
  if (found) return found;
  const type = (contentType ?? '').toLowerCase();
  const end = /\.([a-z0-9]{1,9})$/i.exec(name)?.[1]?.toLowerCase() ?? '';
  if (type.includes('pdf') || end === 'pdf')
    throw new Unreadable(
      'damaged',
      'This file is called a PDF, but it is none. Export it again from the program that made it',
    );
  if (type.includes('wordprocessingml') || end === 'docx')
    throw new Unreadable(
      'damaged',
      'This file is called a DOCX, but it is none. Save it again from the program that made it',
    );
  const medium = MEDIA.find(([pattern]) => pattern.test(type) && !type.includes('xhtml'));
  if (medium) throw unsupported(medium[1]);
  if (type.includes('html') || /^x?html?$/.test(end)) return 'html';
  if (type.includes('markdown') || /^(?:md|markdown|mdx)$/.test(end)) return 'markdown';
  return 'text';
};

const DAMAGED_TEXT = 'This is no text, or its letters cannot be read. Save text as UTF-8, and add it again';

const decodeWith = (label: string | null | undefined, bytes: Uint8Array, fatal: boolean): string | null => {
  if (!label) return null;
  try {
    return new TextDecoder(label.trim(), { fatal }).decode(bytes);
  } catch {
    return null; // an unknown name, or bytes that are not in it
  }
};

const declaredCharset = (start: string): string | null =>
  (/<meta[^>]{0,300}?charset\s{0,9}=\s{0,9}["']?\s{0,9}([\w-]{2,40})/i.exec(start) ??
    /^<\?xml[^>]{0,100}encoding\s{0,9}=\s{0,9}["']([\w-]{2,40})/.exec(start))?.[1] ?? null;

/** UTF-16 without a mark at its start: every other byte of most Western text is zero. */
const utf16Of = (bytes: Uint8Array): string | null => {
  const sample = bytes.subarray(0, 512);
  const zeros = [0, 0];
  for (const [at, byte] of sample.entries()) if (byte === 0) zeros[at % 2] = (zeros[at % 2] ?? 0) + 1;
  const [even = 0, odd = 0] = zeros;
  if (sample.length < 8 || Math.max(even, odd) < sample.length / 5 || Math.min(even, odd) > sample.length / 20)
    return null;
  return even > odd ? 'utf-16be' : 'utf-16le';
};

/**
 * Decodes a text: by the mark at its start, as UTF-8 if it is valid, by the charset that the server or else the page
 * declares, and at last by what the bytes look like.
 */
const decode = (bytes: Uint8Array, contentType: string | null): string => {
  const marked = startsWith(bytes, 0xfe, 0xff) ? 'utf-16be' : startsWith(bytes, 0xff, 0xfe) ? 'utf-16le' : null;
  const wide = marked ?? utf16Of(bytes);
  const header = /charset\s{0,9}=\s{0,9}"?([\w-]{2,40})/i.exec(contentType ?? '')?.[1] ?? null;
  const declared = header ?? declaredCharset(latinOf(bytes, 4096));
  // What is right as UTF-8 is nearly always UTF-8, whatever is declared. Encodings of seven bits look like it too.
  const isSevenBit = /^(?:iso-2022|hz)/i.test(declared ?? '');
  const text =
    decodeWith(wide, bytes, false) ??
    decodeWith(isSevenBit ? declared : null, bytes, false) ??
    decodeWith('utf-8', bytes, true) ??
    decodeWith(/^utf/i.test(declared ?? '') ? null : declared, bytes, true) ??
    decodeWith(analyse(bytes.subarray(0, 20_000)).find(({ confidence }) => confidence >= 10)?.name, bytes, false) ??
    decodeWith('windows-1252', bytes, false) ??
    '';
  const sample = text.slice(0, 20_000);
  // oxlint-disable-next-line no-control-regex -- control characters tell what is no text
  const controls = sample.match(/[\u0000-\u0008\u000e-\u001a\u001c-\u001f]/g)?.length ?? 0;
  const unknown = sample.match(/\ufffd/g)?.length ?? 0;
  if (controls > 2 + sample.length / 100 || unknown > 10 + sample.length / 10)
    throw new Unreadable('damaged', DAMAGED_TEXT);
  return text;
};

const textBlock = (text: string): TextBlock => ({
  kind: 'text',
  text,
  level: 0,
  anchor: null,
  asks: false,
  byLine: false,
});

/** Reads paragraphs between empty lines. An underlined line is a heading. */
const readText = (text: string): Contents => {
  const blocks: TextBlock[] = [];
  let paragraph: string[] = [];
  const end = (): void => {
    if (paragraph.length > 0) blocks.push(textBlock(joinBrokenLines(paragraph)));
    paragraph = [];
  };
  for (const line of text.split(/\r\n|[\r\n\u2028\u2029\f]/)) {
    const shown = toLine(line);
    const rule = /^(?:={3,}|-{3,}|~{3,}|\*{3,})$/.exec(shown);
    const before = paragraph.at(-1);
    if (rule && paragraph.length === 1 && before && before.length <= MAX_TITLE_CHARS) {
      paragraph = [];
      blocks.push({ ...textBlock(before), kind: 'heading', level: shown.startsWith('=') ? 1 : 2 });
    } else if (shown === '' || rule) end();
    else if (/^(?:[-*•–] |\d{1,3}[.)] )/.test(shown)) {
      end();
      paragraph = [shown.replace(/^(\d{1,3})\. /, '$1) ')];
    } else paragraph.push(shown);
  }
  end();
  const [first] = blocks;
  return { document: emptyDocument(), blocks, title: first?.kind === 'heading' && first.level === 1 ? first.text : '' };
};

/** The values of a front matter that a page may need. */
const frontMatter = (text: string): { rest: string; title: string; language: string | null } => {
  const matter = /^---\r?\n([\s\S]{0,5000}?)\r?\n(?:---|\.\.\.)[ \t]*(?:\r?\n|$)/.exec(text);
  if (!matter) return { rest: text, title: '', language: null };
  const valueOf = (key: string): string =>
    (new RegExp(`^${key}:[ \\t]*(.{1,300})$`, 'im').exec(matter[1] ?? '')?.[1] ?? '')
      .trim()
      .replace(/^(["'])(.*)\1$/, '$2');
  return { rest: text.slice(matter[0].length), title: valueOf('title'), language: valueOf('lang(?:uage)?') || null };
};

const CODE = /(^(?:```|~~~)[^\n]*\n[\s\S]*?^(?:```|~~~)[^\n]*$|`[^`\n]{1,500}`)/gm;

/**
 * Markdown without what only programs that publish it understand: components and expressions (MDX), modules, and the
 * fences of boxes. What components contain stays, and so does code.
 */
const withoutComponents = (text: string): string =>
  text
    .split(CODE)
    .map((part, nth) =>
      nth % 2 === 1
        ? part
        : withoutTemplates(part)
            .replace(
              /^(?:import [^\n]{1,500} from ["']|export (?:const \w{1,100} =|default (?:function|[({A-Z])))[^\n]*$/gm,
              '',
            )
            .replace(
              /^:{3,10}[ \t]{0,9}(?:[a-z]{1,30})?[ \t]{0,9}(?:\[([^\]\n]{0,200})\]|([^\n{]{0,200}))?(?:\{[^}\n]{0,200}\})?$/gm,
              '\n$1$2\n',
            )
            .replace(/\{\/\*[\s\S]{0,2000}?\*\/\}/g, '')
            .replace(/<\/?[A-Z][\w.]{0,50}(?:\s[^<>]{0,1000})?>|<[a-z]\w{0,20}\s[^<>]{0,300}=\{[^<>]{0,300}>/g, ''),
    )
    .join('');

const readMarkdown = async (text: string): Promise<Contents> => {
  const { default: MarkdownIt } = await import('markdown-it');
  const { rest, title, language } = frontMatter(text);
  // `{#id}` after a heading is its anchor in most programs that publish Markdown, which may also have a class.
  const html = new MarkdownIt({ html: true })
    .render(withoutComponents(rest))
    .replace(/<(h[1-6])>([^\n]*?)\s?\{:?\s?#([\w-]{1,100})(?:\s[^{}\n]{0,200})?\}<\/h[1-6]>/g, '<$1 id="$3">$2</$1>');
  const contents = readHtml(html);
  return { ...contents, title: title || contents.title, document: { ...contents.document, language } };
};

/** A title without the name of the site, which a bar or a dash sets apart. */
const withoutSite = (title: string, site: string): string => {
  const parts = title.split(/ [|·•–—:»«-]{1,2} /);
  if (parts.length < 2) return title;
  if (site !== '' && parts.at(-1) === site) return parts.slice(0, -1).join(' – ');
  if (site !== '' && parts[0] === site) return parts.slice(1).join(' – ');
  return parts[0] && parts[0].length > 3 ? parts[0] : title;
};

const readHtml = (text: string): Contents => {
  const document = parseHtml(text);
  const { blocks, heading } = findMainText(document);
  const { meta } = document;
  const declared = toLine(meta.get('og:title') ?? '') || document.title;
  const named = withoutSite(declared, toLine(meta.get('og:site_name') ?? ''));
  return { document, blocks, title: heading ?? named };
};

const readDocx = async (bytes: Uint8Array): Promise<Contents> => {
  const { html, lacks } = await (await import('./docx.ts')).docxToHtml(bytes, (part) => decode(part, null));
  const contents = readHtml(html);
  // The chapters of a DOCX have the same level as its title.
  const title = html.includes('<h1 class="title">')
    ? contents.blocks.find(({ kind, level }) => kind === 'heading' && level === 1)?.text
    : undefined;
  return { ...contents, title: title ?? contents.title, ...(lacks !== null && { lacks }) };
};

const read = async (format: Format, { bytes, contentType }: ReadInput): Promise<Contents> => {
  if (format === 'docx') return readDocx(bytes);
  if (format === 'pdf') return (await import('./pdf.ts')).readPdf(bytes);
  const text = decode(bytes, contentType);
  if (format === 'html') return readHtml(text);
  return format === 'markdown' ? readMarkdown(text) : readText(text);
};

/** An absolute address of the web without its fragment, or null. */
const toAddress = (href: string, base: string | null): string | null => {
  const address = URL.parse(href, base ?? undefined);
  if (!address || !/^https?:$/.test(address.protocol) || address.username !== '') return null;
  address.hash = '';
  return address.href.length <= MAX_LINK_CHARS ? address.href : null;
};

const linksOf = ({ hrefs }: HtmlDocument, base: string | null): string[] => {
  const links = new Set<string>();
  for (const href of hrefs) {
    const link = toAddress(href, base);
    if (link !== null) links.add(link);
    if (links.size >= MAX_LINKS) break;
  }
  return [...links];
};

/** Languages that the detector confuses. */
const ALIKE = [
  ['no', 'nb', 'nn', 'da'],
  ['sr', 'hr', 'bs', 'sl'],
  ['id', 'ms'],
  ['pt', 'gl'],
  ['cs', 'sk'],
  ['zh', 'yue'],
];
const isAlike = (one: string, other: string): boolean =>
  one === other || ALIKE.some((group) => group.includes(one) && group.includes(other));

/** How much of a sample is in each language. Many short pieces vote, because one rare word decides a piece. */
const weighLanguages = (blocks: readonly TextBlock[]): { total: number; shares: [string, number][] } => {
  const weights = new Map<string, number>();
  let total = 0;
  for (const { kind, text, byLine } of blocks) {
    const piece = text.slice(0, 200);
    const letters = piece.match(/\p{L}/gu)?.length ?? 0;
    if (kind !== 'text' || byLine || letters < LEAST_PIECE) continue;
    const found = detect(piece);
    const language = found.length === 2 ? found : ''; // the others are rare, or made up
    weights.set(language, (weights.get(language) ?? 0) + letters);
    total += letters;
    if (total > MOST_FOR_LANGUAGE) break;
  }
  const shares = [...weights].map(([language, weight]): [string, number] => [language, weight / total]);
  return { total, shares: shares.sort(([, one], [, other]) => other - one) };
};

/** Scripts in which one language is written far more often than others. Japanese also writes Han. */
const SCRIPTS: [RegExp, string][] = [
  [/[\p{Script=Hiragana}\p{Script=Katakana}]/u, 'ja'],
  [/[їєґ]/iu, 'uk'],
  [/[ыэё]/iu, 'ru'],
  [/\p{Script=Hangul}/u, 'ko'],
  [/\p{Script=Han}/u, 'zh'],
  [/\p{Script=Greek}/u, 'el'],
  [/\p{Script=Hebrew}/u, 'he'],
  [/[پچژگ]/u, 'fa'],
  [/\p{Script=Arabic}/u, 'ar'],
  [/\p{Script=Thai}/u, 'th'],
  [/\p{Script=Armenian}/u, 'hy'],
  [/\p{Script=Georgian}/u, 'ka'],
  [/\p{Script=Devanagari}/u, 'hi'],
  [/\p{Script=Bengali}/u, 'bn'],
  [/\p{Script=Tamil}/u, 'ta'],
  [/\p{Script=Telugu}/u, 'te'],
];

/** The language of a short text, by its script. Names in Latin letters stand in texts of every script. */
const languageOfScript = (blocks: readonly TextBlock[]): string | null => {
  const text = blocks
    .map((block) => block.text)
    .join(' ')
    .slice(0, MOST_FOR_LANGUAGE);
  const letters = text.match(/\p{L}/gu) ?? [];
  const foreign = letters.filter((letter) => !/\p{Script=Latin}/u.test(letter));
  if (foreign.length < 2 || foreign.length * 2 < letters.length) return null;
  return SCRIPTS.find(([script]) => script.test(foreign.join('')))?.[1] ?? null;
};

const isLatin = (language: string): boolean => new Intl.Locale(language).maximize().script === 'Latn';

/**
 * Many templates declare a language although the text is in another one. So a clearly detected language overrules the
 * declared one.
 */
const decideLanguage = (declared: string | null, blocks: readonly TextBlock[]): string | null => {
  const { total, shares } = weighLanguages(blocks);
  const [first, share] = shares[0] ?? ['', 0];
  if (declared === null)
    return total >= LEAST_FOR_LANGUAGE && first !== '' && share > 0.5 ? first : languageOfScript(blocks);
  const base = declared.split('-')[0]?.toLowerCase() ?? '';
  const isClear = total >= 2 * LEAST_FOR_LANGUAGE && share > 0.8 && first !== '';
  const written = isLatin(declared) ? languageOfScript(blocks) : null;
  if (written !== null && !isClear) return written;
  return isClear && !shares.some(([language]) => isAlike(language, base)) ? first : declared;
};

const nameOf = ({ name, url }: ReadInput): string => {
  const last =
    name ||
    decodeURIComponentSafely(
      URL.parse(url ?? '')
        ?.pathname.split('/')
        .findLast((part) => part !== '') ?? '',
    );
  return (
    toLine(last.replace(/\.[a-z0-9]{1,9}$/i, '').replace(/[-_+]+/g, ' ')) || (URL.parse(url ?? '')?.hostname ?? '')
  );
};

const decodeURIComponentSafely = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

const NO_TEXT: Record<Format, string> = {
  html: 'This page has no text of its own. If it shows text in a browser, a script makes it: add the text as a file',
  pdf: 'This PDF has pictures of pages and no text. Run text recognition (OCR) on it, and add it again',
  docx: 'This document has no text',
  markdown: 'This file has no text',
  text: 'This file has no text',
};

const robotsOf = ({ meta }: HtmlDocument): { mayIndex: boolean; mayFollow: boolean } => {
  const words = new Set((meta.get('robots') ?? '').toLowerCase().split(/[\s,]+/));
  return {
    mayIndex: !words.has('noindex') && !words.has('none'),
    mayFollow: !words.has('nofollow') && !words.has('none'),
  };
};

/** A page that leads on within this time shows nothing that a visitor could read. */
const LEADS_WITHIN_S = 10;

/** The address to which a page leads by itself, as `0; url=./en/` says. */
const refreshOf = ({ meta }: HtmlDocument, base: string | null): string | null => {
  const [, seconds = '', quote = '', rest = ''] =
    /^\s{0,9}(\d{1,4})(?:\.\d{0,9})?\s{0,9}[;,]?\s{0,9}(?:url\s{0,9}=\s{0,9})?(["']?)(\S.*)$/i.exec(
      meta.get('refresh') ?? '',
    ) ?? [];
  if (seconds === '' || Number(seconds) > LEADS_WITHIN_S) return null;
  const [address = ''] = quote === '' ? [rest] : rest.split(quote, 1);
  return toAddress(address.trim(), base);
};

/** Reads one document. Throws {@link Unreadable} for what its owner can mend. */
export const readDocument = async (input: ReadInput): Promise<ReadPage> => {
  const format = formatOf(input);
  const { document, blocks, title: found, lacks = null } = await read(format, input);
  const base =
    document.base === null ? input.url : (URL.parse(document.base, input.url ?? undefined)?.href ?? input.url);
  const links = linksOf(document, base);
  const title =
    toLine(found).slice(0, MAX_TITLE_CHARS).toWellFormed() || nameOf(input).slice(0, MAX_TITLE_CHARS).toWellFormed();
  const declared = toLanguage(
    document.language ?? document.meta.get('content-language') ?? document.meta.get('og:locale'),
  );
  const language = decideLanguage(declared, blocks);
  const split = createSplitter(language);
  const sections = toSections(title, blocks);
  const passages = toPassages(sections, split, isQuestion);
  // A page with links alone has no passages, but it leads to other pages.
  const refresh =
    refreshOf(document, base) ??
    (passages.length === 0 && document.leadsTo !== null ? toAddress(document.leadsTo, base) : null);
  if (passages.length === 0 && links.length === 0 && refresh === null) throw new Unreadable('no_text', NO_TEXT[format]);
  return {
    title,
    language,
    canonical: document.canonical === null ? null : toAddress(document.canonical, base),
    links,
    refresh,
    ...robotsOf(document),
    passages,
    proposals: findProposals(document, sections, split),
    lacks,
  };
};
