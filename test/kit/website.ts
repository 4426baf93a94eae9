import type { IncomingMessage, ServerResponse } from 'node:http';
import { type Answer, openReceiver, type Received } from './receiver.ts';

/** What a page of the site answers. A text is HTML; a function may do anything. */
export type SitePage =
  | string
  | { status?: number; headers?: Record<string, string | string[]>; body?: string | Buffer }
  | ((request: IncomingMessage, response: ServerResponse) => unknown);

export type Website = {
  url: string;
  /** Where the pages are, by path. Tests change it. */
  pages: Map<string, SitePage>;
  /** The paths that were asked for, in order. */
  asked: string[];
  /** When each was asked for. */
  askedAt: number[];
  close: () => Promise<void>;
};

/** A page about one thing, with links to others. */
export const aPage = (title: string, text: string, links: string[] = []): string =>
  `<!doctype html><html lang="en"><head><title>${title}</title></head><body><main><h1>${title}</h1><p>${text}</p></main>
   <nav>${links.map((link) => `<a href="${link}">${link}</a>`).join(' ')}</nav></body></html>`;

/** A sentence that is long enough for a passage, and that no other page has. */
export const aSentence = (subject: string): string =>
  `The rules for ${subject} are simple: ask at the desk before noon, bring the ticket, and you get what belongs to ${subject} ` +
  `on the same day. Whoever comes later waits until the next morning, because the desk for ${subject} closes at noon.`;

/** A real site on this machine. Pages that are not there answer 404. */
export const openWebsite = async (
  pages: Record<string, SitePage> = {},
  { tls }: { tls?: { key: string; cert: string } } = {},
): Promise<Website> => {
  const all = new Map(Object.entries(pages));
  const respond = ({ path }: Received): Answer => {
    const page = all.get(path) ?? all.get('*') ?? { status: 404, body: 'not here' };
    if (typeof page === 'function') return (response, request) => page(request, response);
    const { headers = {}, ...rest } = typeof page === 'string' ? { body: page } : page;
    return { body: '', ...rest, headers: { 'Content-Type': 'text/html; charset=utf-8', ...headers } };
  };
  const { url, received, close } = await openReceiver({ respond, ...(tls && { tls }) });
  return {
    url,
    pages: all,
    get asked() {
      return received.map(({ path }) => path);
    },
    get askedAt() {
      return received.map(({ at }) => at);
    },
    close,
  };
};
