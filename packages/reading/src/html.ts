import { Parser } from 'htmlparser2';
import { BLOCKS, folds, headingLevelOf, ICON_TEXT, isDecorative, isIcon, isUnseen, SKIPPED } from './elements.ts';
import { type Attributes, type Region, roleOf } from './region.ts';
import { Table } from './table.ts';
import { asksSomething, toLine, toLines, Unreadable, withoutInvisible, withoutTemplates } from './text.ts';

/**
 * A page as blocks in reading order. One pass over the markup makes them, without a tree: a page of 10 MB costs little more than its text,
 * and no depth of elements overflows a stack. Which blocks are the page's text is decided afterwards (main-text.ts).
 */
export type Block = {
  /** `leave` ends the scope of headings of its level or deeper, as the end of `<details>` does. */
  kind: 'heading' | 'text' | 'leave';
  text: string;
  /** Of a heading: 1 to 6, and more for what is folded away under a summary. */
  level: number;
  anchor: string | null;
  /** A heading that opens an answer, as a summary does. */
  asks: boolean;
  /** Code and rows are split at lines, not at sentences. */
  byLine: boolean;
  region: Region;
  /** How many characters are links. `insideChars`: of these, links to a place on the same page. */
  linkChars: number;
  insideChars: number;
};

export type HtmlDocument = {
  blocks: Block[];
  /** A parent comes before its children. */
  regions: Region[];
  title: string;
  meta: Map<string, string>;
  language: string | null;
  canonical: string | null;
  base: string | null;
  /** Addresses as written, each once. */
  hrefs: string[];
  /** Contents of the `application/ld+json` scripts. */
  data: string[];
  /** Where a script leads, which counts if the page has no text. */
  leadsTo: string | null;
};

export const emptyDocument = (language: string | null = null): HtmlDocument => ({
  blocks: [],
  regions: [],
  title: '',
  meta: new Map(),
  language,
  canonical: null,
  base: null,
  hrefs: [],
  data: [],
  leadsTo: null,
});

// Older pages that leave elements open reach a depth of some thousands.
const MAX_DEPTH = 10_000;
const MAX_TEXT_CHARS = 12_000_000;
const MAX_BLOCKS = 300_000;
const MAX_HREFS = 50_000;
const MAX_HREF_CHARS = 2048;
const MAX_DATA_CHARS = 1_000_000;
const MAX_META = 200;
const MAX_REGIONS = 100_000;
const MAX_TERMS = 5;
const MAX_HEADING_CHARS = 500;

/** A script that leads to another page: `location.replace("/en/")`. */
const LEADS = /(?:^|[^\w$])location(?:\.href\s?=|\s?=|\.(?:replace|assign)\()\s?(?:(["'])([^"'\n]{1,500})\1)/;
const MAX_LEADING_SCRIPT = 2000;

/** The text of a heading, without the signs of links to the heading itself. */
const headingText = (written: string): string =>
  toLine(written)
    .slice(0, MAX_HEADING_CHARS)
    .replace(/^(?:[#§](?! ?\d)|[¶🔗])+ ?/u, '')
    .replace(/ ?[#¶§🔗]$/u, '')
    .trim();

const codeText = (written: string): string => {
  const lines = withoutInvisible(written)
    .split(/\r?\n/)
    .map((line) => line.trimEnd());
  return lines.filter((line) => line !== '').join('\n');
};

/** An element that is open. */
type Frame = { name: string; region: Region; isSkipped: boolean; onClose: (() => void) | null };

/** Titles in a row without text between them. */
type TitleRun = { kind: 'links' | 'labels'; headings: Block[] };
/** So many titles in a row are a list of what is elsewhere, or tabs, and the last is no heading of what follows. */
const LONGEST_RUN = { links: 2, labels: 1 };

class BlockWriter {
  readonly document = emptyDocument();
  private readonly stack: Frame[] = [];
  private region: Region = { parent: null, role: 'page', hasMain: false, hasTitle: false };
  private parts: string[] = [];
  private chars = 0;
  private linkChars = 0;
  private insideChars = 0;
  private totalChars = 0;
  private hasInk = false;
  private endsWithBreak = false;
  private link: 'inside' | 'away' | null = null;
  private heading: { level: number; anchor: string | null; asks: boolean; button: string } | null = null;
  /** The text of a button or a label. It is of use if it asks something, or if it is the title of what it shows. */
  private button: string[] | null = null;
  /** The last such title. What it is over ends with the element around both. */
  private folded: { depth: number; blocks: number; level: number } | null = null;
  private titles: TitleRun | null = null;
  /** The titles of tabs, by their ids. */
  private readonly tabs = new Map<string, string>();
  /** The ids of inputs that show a text when they are checked. */
  private readonly switches = new Set<string>();
  private forms = 0;
  /** The contents of a title or of data. */
  private captured: { parts: string[]; chars: number } | null = null;
  private pendingAnchor: string | null = null;
  private preformatted = 0;
  private codes = 0;
  private details = 0;
  private readonly lists: { isOrdered: boolean; count: number }[] = [];
  private prefix = '';
  private openTerms = 0;
  private readonly terms: string[] = [];
  private isAskedTerm = false;
  private readonly tables: Table[] = [];
  private rowLinkChars = 0;
  private readonly seenHrefs = new Set<string>();

  constructor() {
    this.document.regions.push(this.region);
  }

  onopentag(name: string, attributes: Attributes): void {
    if (this.stack.length >= MAX_DEPTH)
      throw new Unreadable(
        'damaged',
        'The elements of this page are nested too deeply. Save it in another way, or add its text as a text file',
      );
    const isSkipped = this.stack.at(-1)?.isSkipped === true || SKIPPED.has(name);
    const frame: Frame = { name, region: this.region, isSkipped, onClose: null };
    this.stack.push(frame);
    if (name === 'script') this.openScript(frame, attributes);
    else if (name === 'meta' && this.stack.at(-2)?.name === 'noscript' && attributes['http-equiv'] !== undefined)
      this.noteMeta(attributes);
    else if (!isSkipped) this.openElement(frame, attributes);
  }

  /** The parser closes what is open in the order of the stack, and a void element at once. */
  onclosetag(): void {
    const frame = this.stack.pop();
    if (!frame) return;
    if (BLOCKS.has(frame.name) && !frame.isSkipped) this.breakBlock();
    frame.onClose?.();
    this.region = frame.region;
    const { folded } = this;
    if (!folded || this.stack.length >= folded.depth || this.document.blocks.length <= folded.blocks) return;
    this.folded = null;
    this.leave(folded.level);
  }

  ontext(data: string): void {
    if (this.captured) {
      this.captured.chars += data.length;
      if (this.captured.chars <= MAX_DATA_CHARS) this.captured.parts.push(data);
    } else if (this.stack.at(-1)?.isSkipped !== true) {
      if (this.button) this.button.push(data);
      else if (this.preformatted > 0) this.write(data);
      else this.write((this.codes > 0 ? data : withoutTemplates(data)).replace(/[\r\n]/g, ' '));
    }
  }

  onend(): void {
    this.flush();
  }

  private write(data: string): void {
    this.parts.push(data);
    if (data.trim() !== '') {
      this.hasInk = true;
      this.endsWithBreak = false;
    }
    this.chars += data.length;
    this.totalChars += data.length;
    if (this.totalChars > MAX_TEXT_CHARS || this.document.blocks.length > MAX_BLOCKS)
      throw new Unreadable(
        'too_large',
        'This document has more text than one document may have. Split it into smaller ones',
      );
    if (this.link) this.linkChars += data.length;
    if (this.link === 'inside') this.insideChars += data.length;
  }

  private capture(frame: Frame, use: (text: string) => void): void {
    const captured = { parts: [] as string[], chars: 0 };
    this.captured = captured;
    frame.onClose = () => {
      this.captured = null;
      if (captured.chars <= MAX_DATA_CHARS) use(captured.parts.join(''));
    };
  }

  private openScript(frame: Frame, { type = '' }: Attributes): void {
    if (/^\s{0,9}application\/ld\+json/i.test(type)) this.capture(frame, (text) => this.document.data.push(text));
    else if (this.document.leadsTo === null)
      this.capture(frame, (text) => {
        const address = LEADS.exec(text.slice(0, MAX_LEADING_SCRIPT))?.[2];
        this.document.leadsTo ??= address ?? null;
      });
  }

  private openElement(frame: Frame, attributes: Attributes): void {
    const { name } = frame;
    const isBlock = BLOCKS.has(name);
    if (name === 'a' || name === 'area') this.noteLink(attributes);
    if (isBlock) this.breakBlock();
    if (isBlock ? isDecorative(name, attributes) : isUnseen(name, attributes)) {
      frame.isSkipped = true;
      return;
    }
    if (this.openHead(frame, attributes)) return;
    if (isBlock) this.enterRegion(frame, attributes);
    this.noteAnchor(name, attributes, isBlock);

    const level = headingLevelOf(name, attributes);
    if (level > 0) this.openHeading(frame, this.details > 0 ? 6 + this.details + level : level, false);
    else if (name === 'summary') this.openHeading(frame, 6 + Math.max(1, this.details), true);
    else if (name === 'button' || name === 'label' || attributes.role === 'button' || attributes.role === 'tab')
      this.openButton(frame, attributes);
    else if (name === 'a' && folds(attributes)) this.openButton(frame, attributes);
    else if (name === 'a') this.openLink(frame, attributes);
    else if (name === 'br') this.writeBreak();
    else if (name === 'input') this.noteSwitch(attributes);
    else if (attributes.role === 'tabpanel') this.openPanel(frame, attributes);
    else if (name === 'b' || name === 'strong') this.noteBold();
    else if (!isBlock && isIcon(name, attributes)) this.openIcon(frame);
    else if (name === 'code') this.count(frame, 'codes');
    else if (isBlock) this.openBlock(frame, attributes);
  }

  /** Reads what a page says about itself. True for its title, whose text is no text of the page. */
  private openHead(frame: Frame, attributes: Attributes): boolean {
    const { document } = this;
    if (frame.name === 'html') document.language ??= attributes.lang ?? attributes['xml:lang'] ?? null;
    else if (frame.name === 'base') document.base ??= attributes.href ?? null;
    else if (frame.name === 'meta') this.noteMeta(attributes);
    else if (frame.name === 'link') {
      const rel = (attributes.rel ?? '').toLowerCase();
      if (rel === 'canonical') document.canonical ??= attributes.href ?? null;
      if (rel === 'next' || rel === 'prev') this.noteHref(attributes.href ?? '');
    } else if (frame.name === 'title') {
      this.capture(frame, (text) => {
        document.title ||= toLine(text.slice(0, MAX_HEADING_CHARS));
      });
      return true;
    }
    return false;
  }

  private noteMeta({ name, property, 'http-equiv': equivalent, content = '' }: Attributes): void {
    const { meta } = this.document;
    const key = (name ?? property ?? equivalent ?? '').trim().toLowerCase();
    if (key === '' || key.length > 100 || meta.size >= MAX_META) return;
    const known = meta.get(key);
    const given = content.slice(0, 2000);
    // A page may have several `robots`. Each adds something that is forbidden.
    if (key !== 'robots') meta.set(key, known ?? given);
    else if ((known?.length ?? 0) < 2000) meta.set(key, known === undefined ? given : `${known},${given}`);
  }

  private noteLink({ href = '', rel = '' }: Attributes): void {
    if (!/(?:^|\s)nofollow(?:\s|$)/i.test(rel.slice(0, 200))) this.noteHref(href);
  }

  private noteHref(href: string): void {
    const written = href.length > MAX_HREF_CHARS ? '' : href.trim();
    if (written === '' || written.startsWith('#') || this.seenHrefs.size >= MAX_HREFS || this.seenHrefs.has(written))
      return;
    this.seenHrefs.add(written);
    this.document.hrefs.push(written);
  }

  private noteAnchor(name: string, { id, name: given }: Attributes, isBlock: boolean): void {
    const anchor = id || (name === 'a' ? given : undefined);
    if (!anchor || anchor.length > 200 || !(isBlock || name === 'a' || name === 'span')) return;
    if (this.heading) this.heading.anchor ??= anchor;
    else this.pendingAnchor = anchor;
  }

  private enterRegion(frame: Frame, attributes: Attributes): void {
    const isHeading = headingLevelOf(frame.name, attributes) > 0;
    const role = isHeading ? null : roleOf(frame.name, attributes, () => this.isInText());
    if (role === null || this.tables.at(-1)?.isInCell || this.document.regions.length >= MAX_REGIONS) return;
    this.region = { parent: this.region, role, hasMain: false, hasTitle: false };
    this.document.regions.push(this.region);
    if (role === 'main') this.mark('hasMain');
  }

  private isInText(): boolean {
    for (let region: Region | null = this.region; region; region = region.parent)
      if (region.role === 'main' || region.role === 'article') return true;
    return false;
  }

  private mark(sign: 'hasMain' | 'hasTitle'): void {
    for (let region: Region | null = this.region; region && !region[sign]; region = region.parent) region[sign] = true;
  }

  private openHeading(frame: Frame, level: number, asks: boolean): void {
    if (this.heading) return;
    this.becomeLayout();
    if (level === 1) this.mark('hasTitle');
    this.heading = { level, anchor: this.pendingAnchor, asks, button: '' };
    this.pendingAnchor = null;
    frame.onClose = () => this.endHeading();
  }

  private endHeading(): void {
    const { heading, parts, linkChars, insideChars, chars } = this;
    this.heading = null;
    this.startBlock();
    if (!heading) return;
    const { level, anchor, asks, button } = heading;
    const run = linkChars - insideChars > chars * 0.8 ? 'links' : undefined;
    this.push({ kind: 'heading', text: headingText(parts.join('')) || button, level, anchor, asks }, run);
  }

  private openLink(frame: Frame, { href = '' }: Attributes): void {
    if (href === '' || this.link) return;
    const isInside = href.startsWith('#');
    if (this.heading && isInside && href.length < 200) this.heading.anchor ??= href.slice(1) || null;
    this.link = isInside ? 'inside' : 'away';
    frame.onClose = () => {
      this.link = null;
    };
  }

  private openButton(frame: Frame, attributes: Attributes): void {
    if (this.button) return;
    const button: string[] = [];
    this.button = button;
    frame.onClose = () => {
      this.button = null;
      const text = headingText(button.join(''));
      // A button that is the whole heading folds the text below. A button beside a heading's text copies or edits
      // something.
      if (this.heading) this.heading.button ||= text;
      if (attributes.role === 'tab' && attributes.id && this.tabs.size < MAX_META) this.tabs.set(attributes.id, text);
      else if (!this.heading && (asksSomething(text) || this.isTitle(attributes)))
        this.openFolded(text, this.switches.has(attributes.for ?? '') ? 'labels' : undefined);
    };
  }

  /** Whether a button or label is the title of what follows it. Inside a form, labels belong to fields. */
  private isTitle(attributes: Attributes): boolean {
    return this.forms === 0 && (folds(attributes) || this.switches.has(attributes.for ?? ''));
  }

  private openFolded(text: string, run?: TitleRun['kind']): void {
    this.flush();
    const level = this.foldedLevel;
    this.push({ kind: 'heading', text, level, anchor: null, asks: asksSomething(text) }, run);
    if (text !== '') this.folded = { depth: this.stack.length, blocks: this.document.blocks.length, level };
  }

  private noteSwitch({ id = '', type = '' }: Attributes): void {
    if (id !== '' && /^(?:radio|checkbox)$/i.test(type) && this.switches.size < MAX_META) this.switches.add(id);
  }

  private openPanel(frame: Frame, { 'aria-labelledby': id = '' }: Attributes): void {
    const title = this.tabs.get(id);
    if (title === undefined) return;
    const level = this.foldedLevel;
    this.push({ kind: 'heading', text: title, level });
    frame.onClose = () => this.leave(level);
  }

  /** The heading level of questions whose answers are folded. */
  private get foldedLevel(): number {
    return 7 + this.details;
  }

  private writeBreak(): void {
    if (this.button) return;
    if (this.heading) this.write(' ');
    else if (this.preformatted > 0 || !this.endsWithBreak) {
      this.parts.push('\n');
      this.endsWithBreak = true;
    } else this.flush();
  }

  private openIcon(frame: Frame): void {
    const written = this.button ?? this.parts;
    const from = written.length;
    frame.onClose = () => {
      if (written === (this.button ?? this.parts) && ICON_TEXT.test(written.slice(from).join('')))
        written.length = from;
    };
  }

  private noteBold(): void {
    if (!this.hasInk) this.tables.at(-1)?.noteBold();
  }

  private openBlock(frame: Frame, attributes: Attributes): void {
    const { name } = frame;
    if (name === 'pre') this.count(frame, 'preformatted');
    else if (name === 'ul' || name === 'ol') this.openList(frame, attributes);
    else if (name === 'li') this.openItem(frame);
    else if (name === 'details') this.openDetails(frame);
    else if (name === 'form') this.count(frame, 'forms');
    else if (name === 'dl') frame.onClose = () => this.endTerms();
    else if (name === 'dt') this.openTerm(frame);
    else if (name === 'table') this.openTable(frame, attributes);
    else if (name === 'tr') this.openRow(frame);
    else if (name === 'td' || name === 'th') this.openCell(frame, attributes);
  }

  /** Counts the elements of a kind that are open. */
  private count(frame: Frame, kind: 'preformatted' | 'codes' | 'forms'): void {
    this[kind] += 1;
    frame.onClose = () => {
      this[kind] -= 1;
    };
  }

  private openList(frame: Frame, { start }: Attributes): void {
    this.lists.push({ isOrdered: frame.name === 'ol', count: (Math.trunc(Number(start)) || 1) - 1 });
    frame.onClose = () => {
      this.lists.pop();
    };
  }

  /** "1) " instead of "1. ", after which a sentence would seem to end. */
  private openItem(frame: Frame): void {
    const list = this.lists.at(-1);
    if (list) list.count += 1;
    this.prefix = list?.isOrdered ? `${list.count}) ` : '- ';
    frame.onClose = () => {
      this.prefix = '';
    };
  }

  private openDetails(frame: Frame): void {
    this.becomeLayout();
    this.details += 1;
    frame.onClose = () => {
      this.leave(6 + this.details);
      this.details -= 1;
    };
  }

  private leave(level: number): void {
    this.push({ kind: 'leave', text: '', level });
  }

  private openTerm(frame: Frame): void {
    if (this.isAskedTerm || this.terms.length >= MAX_TERMS) this.endTerms();
    this.openTerms += 1;
    frame.onClose = () => {
      this.openTerms -= 1;
    };
  }

  /** Writes the terms that nothing explained, and ends what the last question was about. */
  private endTerms(): void {
    this.push({ kind: 'text', text: this.terms.splice(0).join(', ') });
    if (this.isAskedTerm) this.leave(this.foldedLevel);
    this.isAskedTerm = false;
  }

  private openTable(frame: Frame, { role }: Attributes): void {
    this.becomeLayout();
    const table = new Table(role === 'presentation' || role === 'none');
    this.tables.push(table);
    frame.onClose = () => {
      this.pushRow(table);
      this.tables.pop();
    };
  }

  private becomeLayout(): void {
    for (const text of this.tables.at(-1)?.becomeLayout() ?? []) this.push({ kind: 'text', text });
  }

  private openRow(frame: Frame): void {
    const table = this.tables.at(-1);
    if (!table) return;
    this.pushRow(table);
    frame.onClose = () => this.pushRow(table);
  }

  private pushRow(table: Table): void {
    this.push({ kind: 'text', text: table.endRow(), byLine: true, linkChars: this.rowLinkChars });
    this.rowLinkChars = 0;
  }

  private openCell(frame: Frame, attributes: Attributes): void {
    const close = this.tables.at(-1)?.openCell(frame.name === 'th', attributes);
    if (close) frame.onClose = close;
  }

  /** Ends the block that is being written, except in a heading, whose inner boxes are parts of it. */
  private breakBlock(): void {
    if (this.heading) this.write(' ');
    else this.flush();
  }

  private startBlock(): void {
    this.parts = [];
    this.chars = 0;
    this.linkChars = 0;
    this.insideChars = 0;
    this.hasInk = false;
    this.endsWithBreak = false;
  }

  /** Ends the block that is being written. */
  private flush(): void {
    if (this.parts.length === 0) return;
    const { chars, linkChars, insideChars } = this;
    const written = this.parts.join('');
    this.startBlock();
    const text = this.preformatted > 0 ? codeText(written) : toLines(written);
    if (text === '') return;
    if (this.openTerms > 0) {
      this.endTerm(text);
      return;
    }
    const explained = this.terms.splice(0).join(', ');
    const shown = `${this.prefix}${explained === '' ? '' : `${explained}: `}${text}`;
    this.prefix = '';
    const table = this.tables.at(-1);
    if (table?.isInCell) {
      this.rowLinkChars += (linkChars * shown.length) / chars;
      if (!table.add(toLine(shown))) this.becomeLayout();
      return;
    }
    this.pendingAnchor = null;
    // The counts include spaces of the markup that the text does not have, so they are scaled down to the text.
    const share = shown.length / chars;
    this.push({
      kind: 'text',
      text: shown,
      byLine: this.preformatted > 0,
      linkChars: linkChars * share,
      insideChars: insideChars * share,
    });
  }

  /** A term is written before what explains it. One that asks is a heading over its answer. */
  private endTerm(text: string): void {
    const term = toLine(text).slice(0, MAX_HEADING_CHARS);
    this.isAskedTerm = asksSomething(term);
    if (!this.isAskedTerm) this.terms.push(term);
    else this.push({ kind: 'heading', text: term, level: this.foldedLevel, anchor: this.pendingAnchor, asks: true });
  }

  private push(given: Pick<Block, 'kind' | 'text'> & Partial<Block>, run?: TitleRun['kind']): void {
    if (given.text === '' && given.kind !== 'leave') return;
    const block: Block = {
      level: 0,
      anchor: null,
      asks: false,
      byLine: false,
      region: this.region,
      linkChars: 0,
      insideChars: 0,
      ...given,
    };
    this.document.blocks.push(block);
    if (block.kind !== 'leave') this.noteTitle(block, run);
  }

  /** Labels in a row are tabs, and headings in a row that lead elsewhere are a list. None is over what follows. */
  private noteTitle(block: Block, kind: TitleRun['kind'] | undefined): void {
    const { titles } = this;
    const isOfRun = kind !== undefined && titles?.kind === kind && titles.headings.at(-1)?.level === block.level;
    if (isOfRun) titles.headings.push(block);
    else {
      const last = titles?.headings.at(-1);
      if (titles && last && titles.headings.length > LONGEST_RUN[titles.kind]) last.kind = 'leave';
      this.titles = kind === undefined ? null : { kind, headings: [block] };
    }
  }
}

export const parseHtml = (markup: string): HtmlDocument => {
  const writer = new BlockWriter();
  const parser = new Parser(writer, { decodeEntities: true });
  parser.end(markup);
  return writer.document;
};
