import type { Action } from './door.ts';

/** Attributes that are undefined or false are left out. An attribute that is true gets an empty value. */
type Attributes = Record<string, string | number | boolean | undefined>;

/** An element with attributes and children. Texts become text nodes, so nothing in them is markup. */
export const make = <Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[Name] => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (value !== undefined && value !== false) element.setAttribute(key, value === true ? '' : String(value));
  element.append(...children);
  return element;
};

const PATHS = {
  chat: 'M21 11.5a8.4 8.4 0 0 1-12 7.6L3 21l1.9-6A8.4 8.4 0 1 1 21 11.5Z',
  close: 'M18 6 6 18M6 6l12 12',
  down: 'm6 9 6 6 6-6',
  send: 'M5 12h14M13 6l6 6-6 6',
};

export const icon = (name: keyof typeof PATHS, size = 20): SVGElement => {
  const of = (tag: string, attributes: Attributes): SVGElement => {
    const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
    return element;
  };
  const svg = of('svg', { viewBox: '0 0 24 24', width: size, height: size, 'aria-hidden': true, focusable: false });
  svg.append(of('path', { d: PATHS[name] }));
  return svg;
};

const opensOutside = (address: string): boolean => URL.parse(address, location.href)?.origin !== location.origin;

/** A link from which neither the linked page nor its server learns about this page. */
const linkTo = (address: string, label: string, kind?: string): HTMLAnchorElement => {
  const outside = /^https?:/i.test(address) && opensOutside(address);
  return make(
    'a',
    { href: address, class: kind, rel: 'noopener noreferrer nofollow', target: outside ? '_blank' : undefined },
    label,
  );
};

const ADDRESS = /https?:\/\/[^\s<>"'`]+/g;
const PUNCTUATION = '.,;:!?…)]}»”’،؛؟。、，！？';

/** The address without the punctuation after it, which belongs to the sentence. */
const withoutPunctuation = (found: string): string => {
  let end = found.length;
  while (end > 0 && PUNCTUATION.includes(found.charAt(end - 1))) end -= 1;
  return found.slice(0, end);
};

/** A text as nodes. Web addresses become links; nothing else does. */
export const textNodes = (text: string): (Node | string)[] => {
  const nodes: (Node | string)[] = [];
  let at = 0;
  for (const { 0: found, index } of text.matchAll(ADDRESS)) {
    const address = withoutPunctuation(found);
    if (!URL.canParse(address)) continue;
    nodes.push(text.slice(at, index), linkTo(address, address));
    at = index + address.length;
  }
  return [...nodes, text.slice(at)];
};

// oxlint-disable-next-line no-control-regex -- these are control characters
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\\]/;

/** The rules of docs/contract.md, Suggested actions, once more: what a page shows must not depend on who stored it. */
export const isSafeLink = (address: string): boolean =>
  !UNSAFE.test(address) &&
  (/^([/#?])(?!\1)/.test(address) || (/^(https?:\/\/|mailto:|tel:)\S/i.test(address) && URL.canParse(address)));

/** The address of an action that is a link. Null for other actions, and for links that must not be shown. */
const addressOf = ({ type, payload }: Action): string | null => {
  if (type === 'link') return isSafeLink(payload) ? payload : null;
  if (type === 'phone') return `tel:${encodeURIComponent(payload).replace(/%2B/gi, '+')}`;
  if (type === 'email') return `mailto:${encodeURIComponent(payload).replace(/%40/g, '@')}`;
  return null;
};

/** A button for an action. Null if there is nothing to show. */
export const actionButton = (action: Action, onPress: (action: Action) => void): HTMLElement | null => {
  const address = addressOf(action);
  if (address !== null) return linkTo(address, action.label, 'chip');
  if (action.type !== 'reply' && action.type !== 'escalate') return null;
  const button = make('button', { class: 'chip', type: 'button' }, action.label);
  button.addEventListener('click', () => onPress(action));
  return button;
};
