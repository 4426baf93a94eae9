// Recognises the elements around a page's text (menus, footers) by their kind, role and names.

/** A part of the page that may be its text, or may be left out. */
export type Region = {
  parent: Region | null;
  /** `aside` are elements that are never text; `named` are called like a menu; `likely` are menus if they are mostly links. */
  role: 'page' | 'main' | 'article' | 'aside' | 'named' | 'likely' | 'hidden';
  hasMain: boolean;
  hasTitle: boolean;
};

export type Attributes = Record<string, string>;

export const namesOf = (list: string): ReadonlySet<string> => new Set(list.split(' '));

const ASIDE_ELEMENTS = namesOf('nav footer dialog menu search');
const ASIDE_ROLES = namesOf(
  'alert alertdialog banner contentinfo dialog menu menubar navigation search tablist toolbar tooltip',
);
/** Words in the class names of elements around the text. */
const ASIDE_WORDS = namesOf(
  'ad ads advert advertisement breadcrumb breadcrumbs byline cmp commentlist comments consent cookie cookiebar cookiebot cookies copyright ' +
    'disqus editlink feedback footer gdpr hamburger jumplinks lightbox masthead modal nav navbar navbox navi navigation newsletter noprint onetrust outbrain ' +
    'pager pagination popup related share sharing sidenav signup skip skiplink skiplinks social sponsor sponsored subscribe subnav taboola ' +
    'toc tableofcontents usercentrics',
);
/** Words of elements that may be the page's menu, or the menu of a restaurant. */
const LIKELY_WORDS = namesOf(
  'banner menu metadata overlay promo rail sidebar sidebars submenu toolbar topbar widget widgets',
);
/** An element with one of these words contains the text, whatever else it is called ("page-with-sidebar"). */
const TEXT_WORDS = namesOf(
  'article body container content declaration has layout main no page policy root text with without wrap wrapper',
);
const UNSEEN_WORDS = namesOf(
  'sronly screenreadertext screenreaderonly visuallyhidden visuallyhiddenfocusable ' +
    // Fonts that draw a picture for a word, such as "expand_more".
    'materialicons materialiconsoutlined materialiconsround materialsymbolsoutlined materialsymbolsrounded materialsymbolssharp',
);
const ARTICLE_IDS = namesOf('content main maincontent pagecontent bodycontent articlebody mwcontenttext primary');

const wordsOf = (names: string): string[] =>
  names
    .slice(0, 300)
    .replace(/([a-z])([A-Z])/g, '$1 $2')
    .toLowerCase()
    .split(/[^a-z]+/);
const joinedNames = (names: string): string[] => names.slice(0, 300).toLowerCase().replace(/[-_]/g, '').split(/\s+/);

/** What an element is by its classes. Ids count for plain boxes only, because a section's id repeats its heading. */
const calledBy = (name: string, { class: classes = '', id = '' }: Attributes): 'named' | 'likely' | null => {
  const isPlain = (name === 'div' || name === 'ul') && !classes.split(/\s+/).includes('section');
  const words = wordsOf(isPlain ? `${classes} ${id}` : classes);
  if (words.some((word) => TEXT_WORDS.has(word))) return null;
  if (words.some((word) => ASIDE_WORDS.has(word))) return 'named';
  return words.some((word) => LIKELY_WORDS.has(word)) ? 'likely' : null;
};

export const looksUnseen = ({ class: classes = '' }: Attributes): boolean =>
  classes !== '' && joinedNames(classes).some((name) => UNSEEN_WORDS.has(name));

const isHidden = ({ hidden, style = '' }: Attributes): boolean =>
  (hidden !== undefined && hidden !== 'until-found') || /display\s{0,3}:\s{0,3}none/i.test(style.slice(0, 500));

/**
 * What an element is on the page, or null for most. Inside the text, a header has the text's title and an aside has a
 * note.
 */
export const roleOf = (name: string, attributes: Attributes, isInText: () => boolean): Region['role'] | null => {
  const role = attributes.role?.toLowerCase() ?? '';
  if (name === 'main' || role === 'main') return 'main';
  if (name === 'html' || name === 'body') return null;
  if (ASIDE_ELEMENTS.has(name) || ASIDE_ROLES.has(role) || looksUnseen(attributes)) return 'aside';
  if ((name === 'header' || name === 'aside' || role === 'complementary') && !isInText()) return 'aside';
  const called = calledBy(name, attributes);
  if (called) return called;
  if (name === 'article' || role === 'article' || joinedNames(attributes.id ?? '').some((id) => ARTICLE_IDS.has(id)))
    return 'article';
  return isHidden(attributes) ? 'hidden' : null;
};
