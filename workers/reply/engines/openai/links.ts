import type { AssistantProfile, KnowledgeEntry } from '../engine.ts';
import { addressesIn, withoutTrailing } from './find-links.ts';
import type { IsAllowedLink } from './reply-filter.ts';

/**
 * Longer than any host name. Longer names are refused, because converting an international name takes quadratic time.
 */
const MAX_AUTHORITY = 300;
const AUTHORITY = /^(?:https?:\/\/)?([^/?#]*)/i;

const hostOf = (link: string): string | null => {
  if ((AUTHORITY.exec(link)?.[1] ?? '').length > MAX_AUTHORITY) return null;
  const url = URL.parse(/^https?:/i.test(link) ? link : `https://${link}`);
  return url ? url.hostname.replace(/^www\./, '') : null;
};

const plain = (link: string): string => withoutTrailing(link, '.,;:!?').replace(/\/$/, '');

/** Allows links that the found knowledge entries contain, and links to hosts that the assistant allows. */
export const allowedLinksOf = ({ allowedLinks = [] }: AssistantProfile, hits: KnowledgeEntry[]): IsAllowedLink => {
  const known = new Set(
    hits.flatMap(({ question, answer, actions }) => [
      ...addressesIn(`${question} ${answer}`).map(plain),
      ...actions.filter(({ type }) => type === 'link').map(({ payload }) => plain(payload)),
    ]),
  );
  const hosts = new Set(allowedLinks.map((host) => host.toLowerCase().replace(/^www\./, '')));
  return (link) => {
    if (known.has(plain(link))) return true;
    const host = /^(https?:\/\/|www\.)/i.test(link) ? hostOf(link) : null;
    return host !== null && hosts.has(host);
  };
};
