import type { Block, HtmlDocument } from './html.ts';
import type { Region } from './region.ts';
import { asksSomething } from './text.ts';

// Which blocks of a page are its text. Menus, banners, footers and lists of links around the text are left out. A
// folded answer is kept, although the visitor does not see it at first.

/** With less than this share of the page's text, an element called `main` is not where the text is. */
const LEAST_OF_MAIN = 0.25;
const LEAST_OF_ARTICLES = 0.5;
/** A box with more than this share of the page is its text, whatever the box is called. */
const MOST_OF_MENU = 0.5;
const LINKED_MENU = 0.4;
/** This many blocks of links in a row are a menu. */
const MENU_BLOCKS = 4;
/** So many links that ask something are a list of what is answered elsewhere. */
const ASKING_LINKS = 2;
const LINK_BLOCK = 0.8;

/** Words for using the page, which pages put among their text. */
const PAGE_WORDS =
  /^(?:edit (?:this|the) page.*|edit on git.*|improve this page|was this (?:page|article|helpful|information).{0,40}|did this (?:page|answer).{0,40}\?|(?:back )?to (?:the )?top|on this page|in this article|table of contents|contents|skip to .{0,20}|last (?:updated|modified|edited|reviewed)\b.{0,60}|share(?: this.{0,20})?|print(?: this page)?|(?:previous|next)(?: page| article| post)?|copy(?: link| code)?|copied!?|loading.{0,3}|details|expand(?: .{0,20})?|(?:show|view|see) (?:more|less|all)|mehr(?: anzeigen)?|voir plus|ver más|advertisement|read more|learn more|nach oben|auf dieser seite|inhaltsverzeichnis|inhalt|seite drucken|war (?:dieser|diese|das) .{0,40}\?|zuletzt (?:aktualisiert|geändert).{0,60}|mehr erfahren|weiterlesen|sommaire|haut de page|sur cette page|en savoir plus|cette page vous a.{0,40}\?|volver arriba|en esta página|leer más|torna su|in questa pagina)$/iu;

type Weight = { chars: number; linkChars: number };

const weigh = (blocks: readonly Block[], regions: readonly Region[]): Map<Region, Weight> => {
  const weights = new Map(regions.map((region) => [region, { chars: 0, linkChars: 0 }]));
  for (const { region, text, linkChars } of blocks) {
    const weight = weights.get(region);
    if (!weight) continue;
    weight.chars += text.length;
    weight.linkChars += linkChars;
  }
  for (const region of regions.toReversed()) {
    const weight = weights.get(region);
    const outer = region.parent && weights.get(region.parent);
    if (!weight || !outer) continue;
    outer.chars += weight.chars;
    outer.linkChars += weight.linkChars;
  }
  return weights;
};

const isMenu = (region: Region, { chars, linkChars }: Weight, total: number): boolean => {
  if (region.hasMain) return false;
  if (region.role === 'aside') return true;
  if (region.hasTitle || chars > total * MOST_OF_MENU) return false;
  return region.role === 'named' || (region.role === 'likely' && linkChars > chars * LINKED_MENU);
};

const menusAmong = (regions: readonly Region[], weights: Map<Region, Weight>): Set<Region> => {
  const total = (regions[0] && weights.get(regions[0])?.chars) ?? 0;
  const menus = new Set<Region>();
  for (const region of regions) {
    const weight = weights.get(region) ?? { chars: 0, linkChars: 0 };
    if ((region.parent && menus.has(region.parent)) || isMenu(region, weight, total)) menus.add(region);
  }
  return menus;
};

/** The outermost regions of this role, and all regions inside them. Menus are left out. */
const within = (regions: readonly Region[], role: Region['role'], menus: ReadonlySet<Region>) => {
  const inside = new Set<Region>();
  const tops: Region[] = [];
  for (const region of regions) {
    if (menus.has(region)) continue;
    const isDeeper = region.parent !== null && inside.has(region.parent);
    if (!isDeeper && region.role !== role) continue;
    if (!isDeeper) tops.push(region);
    inside.add(region);
  }
  return { inside, tops };
};

const charsOf = (tops: readonly Region[], weights: Map<Region, Weight>): number =>
  tops.reduce((sum, region) => sum + (weights.get(region)?.chars ?? 0), 0);

/**
 * Drops runs of links. `isWholePage`: all links count. Otherwise the blocks are the text's own element, where only
 * links to its sections count, and questions that are answered elsewhere.
 */
const withoutLinkRuns = (blocks: readonly Block[], isWholePage: boolean): Block[] => {
  const kept: Block[] = [];
  let run: Block[] = [];
  const endRun = (): void => {
    const texts = run.filter(({ kind }) => kind === 'text');
    const links = texts.reduce((sum, { text }) => sum + Math.max(1, text.match(/[?？؟]/g)?.length ?? 0), 0);
    const least = texts.every(({ text }) => asksSomething(text)) ? ASKING_LINKS : MENU_BLOCKS;
    if (links < least) kept.push(...run);
    else kept.push(...run.filter(({ kind }) => kind !== 'text'));
    run = [];
  };
  for (const block of blocks) {
    const { kind, text, linkChars, insideChars } = block;
    const chars = isWholePage || asksSomething(text) ? linkChars : insideChars;
    if (kind === 'text' && chars > (text.length - 2) * LINK_BLOCK) run.push(block);
    else if (kind === 'leave' && run.length > 0) run.push(block);
    else {
      endRun();
      kept.push(block);
    }
  }
  endRun();
  return kept;
};

const isOfThePage = ({ kind, text }: Block): boolean =>
  kind !== 'leave' && text.length <= 100 && PAGE_WORDS.test(text.replace(/[:：.]$/, ''));

const hasText = (blocks: readonly Block[]): boolean => blocks.some(({ kind }) => kind === 'text');

type MainText = { blocks: Block[]; heading: string | null };

const isAround = (region: Region): boolean => {
  for (let outer: Region | null = region; outer; outer = outer.parent)
    if (outer.role === 'aside' || outer.role === 'named' || outer.role === 'likely') return true;
  return false;
};

/** The main heading: in the text, else elsewhere on the page, but not in a header or menu, where it names the site. */
const firstHeading = (chosen: readonly Block[], all: readonly Block[]): string | null => {
  const isTitle = ({ kind, level }: Block): boolean => kind === 'heading' && level === 1;
  const inText = chosen.filter(isTitle);
  if (inText.length > 1) return null;
  return (inText[0] ?? all.find((block) => isTitle(block) && !isAround(block.region)))?.text ?? null;
};

export const findMainText = ({ blocks, regions }: HtmlDocument): MainText => {
  const menus = menusAmong(regions, weigh(blocks, regions));
  const shown = blocks.filter(({ kind, region }) => kind === 'leave' || !menus.has(region));
  const weights = weigh(shown, regions);
  const total = (regions[0] && weights.get(regions[0])?.chars) ?? 0;

  const mains = within(regions, 'main', menus);
  const articles = within(regions, 'article', menus);
  const isIn = (inside: ReadonlySet<Region>) =>
    shown.filter(({ kind, region }) => kind === 'leave' || inside.has(region));
  const hidden = within(regions, 'hidden', menus).inside;
  const chosen =
    mains.tops.length > 0 && charsOf(mains.tops, weights) > total * LEAST_OF_MAIN
      ? withoutLinkRuns(isIn(mains.inside), false)
      : articles.tops.length > 0 && charsOf(articles.tops, weights) > total * LEAST_OF_ARTICLES
        ? withoutLinkRuns(isIn(articles.inside), false)
        : withoutLinkRuns(
            shown.filter(({ region }) => !hidden.has(region)),
            true,
          );
  const text = chosen.filter((block) => !isOfThePage(block));
  // A page that is all form, dialog or folded boxes has its text there.
  const fallback = hasText(text) ? text : shown.filter((block) => !isOfThePage(block));
  return { blocks: fallback, heading: firstHeading(fallback, blocks) };
};
