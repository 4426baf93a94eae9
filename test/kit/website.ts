import { createServer as createPlain, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createSecure } from 'node:https';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';

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
  const site: Pick<Website, 'pages' | 'asked' | 'askedAt'> = {
    pages: new Map(Object.entries(pages)),
    asked: [],
    askedAt: [],
  };
  const answer = (request: IncomingMessage, response: ServerResponse): void => {
    const path = request.url ?? '';
    site.asked.push(path);
    site.askedAt.push(performance.now());
    const page = site.pages.get(path) ?? site.pages.get('*');
    if (typeof page === 'function') return void page(request, response);
    if (page === undefined) return void response.writeHead(404).end('not here');
    const { status = 200, headers = {}, body = '' } = typeof page === 'string' ? { body: page } : page;
    response.writeHead(status, { 'Content-Type': 'text/html; charset=utf-8', ...headers }).end(body);
  };
  const server: Server = tls ? createSecure(tls, answer) : createPlain(answer);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `${tls ? 'https' : 'http'}://127.0.0.1:${port}`,
    ...site,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
};
