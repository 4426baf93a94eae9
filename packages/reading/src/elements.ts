import { type Attributes, looksUnseen, namesOf } from './region.ts';

// What an element is by its name and attributes: a block, a heading, a title that folds what follows, an icon, or nothing to read.

export const BLOCKS = namesOf(
  'address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure footer form frameset ' +
    'h1 h2 h3 h4 h5 h6 header hgroup hr html legend li main menu nav ol p pre search section summary table tbody td tfoot th thead tr ul',
);
/** What a visitor does not read as text. */
export const SKIPPED = namesOf(
  'annotation applet audio canvas datalist embed iframe noframes noscript object optgroup option rp rt script select style svg template ' +
    'textarea video',
);

export const headingLevelOf = (name: string, { role, 'aria-level': level }: Attributes): number => {
  if (/^h[1-6]$/.test(name)) return Number(name.slice(1));
  return role === 'heading' ? Math.min(6, Math.max(1, Number(level) || 2)) : 0;
};

/** Links to a footnote, and from it back to the text. */
const NOTE = /^#(?:user-content-)?(?:fn(?:ref)?[-:_]?\d|footnote-|endnote-|cite[_-](?:note|ref))/;
/** An element without a box whose text is for machines, for the eye only, or leads to a footnote. */
export const isUnseen = (name: string, attributes: Attributes): boolean => {
  if (attributes['aria-hidden'] === 'true' || looksUnseen(attributes)) return true;
  const { class: classes = '', href = '' } = attributes;
  if (name === 'a' && NOTE.test(href)) return true;
  if (name === 'sup' || name === 'a') return /(?:^|\s)(?:reference|footnote-ref)(?:\s|$)/.test(classes);
  return name === 'span' && classes.includes('mw-editsection');
};

/** A paragraph for the eye only. Boxes with this mark are folded, and so are paragraphs that something refers to. */
export const isDecorative = (name: string, { 'aria-hidden': hidden, id }: Attributes): boolean =>
  name === 'p' && hidden === 'true' && id === undefined;

const FOLDS =
  /(?:^|[\s_-])(?:accordion|collaps(?:e|ed|ible)|disclosure|expand(?:able|er)?|faq|fold|toggler?)(?:$|[\s_-])/i;

/** What names the text that a button shows, in the ways of browsers and of libraries. */
const SHOWS = [
  'aria-expanded',
  'aria-controls',
  'popovertarget',
  'commandfor',
  'data-collapse-toggle',
  'data-accordion-target',
  'uk-toggle',
];
/** What a button's script does if it shows and hides: `toggle(this)`, `open = !open`. */
const TOGGLES = /toggle|expand|collaps|accordion|=\s?!/i;

/** Whether an element shows and hides the text that follows it. */
export const folds = (attributes: Attributes): boolean => {
  const {
    class: classes = '',
    'aria-haspopup': popup,
    'data-toggle': old = '',
    'data-bs-toggle': toggle = old,
  } = attributes;
  if (popup !== undefined || toggle === 'dropdown' || toggle === 'modal') return false;
  return (
    SHOWS.some((name) => attributes[name] !== undefined) ||
    toggle === 'collapse' ||
    ['onclick', '@click', 'x-on:click'].some((name) => TOGGLES.test((attributes[name] ?? '').slice(0, 200))) ||
    FOLDS.test(classes.slice(0, 300))
  );
};

/** An element that draws a picture for a word or a sign, as icon fonts do: `<mat-icon>local_shipping</mat-icon>`. */
export const isIcon = (name: string, { class: classes = '' }: Attributes): boolean =>
  name.endsWith('-icon') || (/^(?:i|em|span)$/.test(name) && ICONS.test(classes.slice(0, 300)));
const ICONS = /(?:^|[\s_-])(?:icons?|glyphicon|fa[bdlrs]?|caret|chevron|arrow)(?:$|[\s_-])/i;
/** What icon fonts draw a picture for. */
export const ICON_TEXT = /^\s*(?:[a-z][a-z0-9_]{0,40}|[^\p{L}\p{N}]{1,3})\s*$/u;
