import type { AssistantProfile, KnowledgeEntry } from '../engine.ts';
import type { IsAllowedLink } from './spoken-text.ts';

const ADDRESS = /\b(?:https?:\/\/|www\.)[^\s<>()[\]"']+/gi;

const hostOf = (link: string): string | null => {
  const url = URL.parse(/^https?:/i.test(link) ? link : `https://${link}`);
  return url ? url.hostname.replace(/^www\./, '') : null;
};

const plain = (link: string): string => link.replace(/[.,;:!?]+$/, '').replace(/\/$/, '');

/** Links a provider may give: those its hits hold, word for word, and those to hosts the assistant allows. */
export const allowedLinksOf = ({ allowedLinks = [] }: AssistantProfile, hits: KnowledgeEntry[]): IsAllowedLink => {
  const known = new Set(
    hits.flatMap(({ question, answer, actions }) => [
      ...(`${question} ${answer}`.match(ADDRESS) ?? []).map(plain),
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
