import express, { type RequestHandler, type Response, Router } from 'express';
import helmet from 'helmet';
import { randomBytes } from 'node:crypto';
import { existsSync, readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { extname, join } from 'node:path';
import type { Logger } from '../process/logger.ts';
import { OWN_ORIGIN, pageHeaders } from '../http/http.ts';

const DASHBOARD_PATH = '/operator';
const BUILT = join(import.meta.dirname, '../../dashboard/dist');
const NONCE = /__CSP_NONCE__/g;

/**
 * Paths that belong to other modules. Unknown paths below them must give a 404 of these modules, not the dashboard's
 * page.
 */
const NOT_PAGES = /^\/(?:v1|queues|assets)(?:\/|$)/;

const CODINGS = [
  ['br', '.br'],
  ['gzip', '.gz'],
] as const;

const nonceOf = (res: ServerResponse): string => (res as Response).locals.nonce as string;

const POLICY = {
  ...OWN_ORIGIN,
  styleSrc: ["'self'", (_req: unknown, res: ServerResponse) => `'nonce-${nonceOf(res)}'`],
  baseUri: ["'none'"],
  formAction: ["'self'"],
};

/** Serves the compressed version of a built file if the browser accepts its encoding. */
const precompressed = (names: ReadonlySet<string>): RequestHandler => {
  return (req, res, next) => {
    res.vary('Accept-Encoding');
    const name = req.path.slice(1);
    if (req.method !== 'GET' && req.method !== 'HEAD') return next();
    const found = CODINGS.find(
      ([coding, ending]) => names.has(name + ending) && req.acceptsEncodings(coding) === coding,
    );
    if (!found) return next();
    const [coding, ending] = found;
    res.setHeader('Content-Encoding', coding);
    res.type(extname(name));
    req.url = `/${name}${ending}`;
    next();
  };
};

const YEAR_MS = 365 * 86_400_000;

/** Removes the headers that were set for a file if the file was not sent. */
const clearFileHeaders: RequestHandler = (_req, res, next) => {
  for (const name of ['Content-Encoding', 'Content-Type', 'Cache-Control', 'Last-Modified']) res.removeHeader(name);
  next();
};

/**
 * Serves the built files. Files with a content hash in their names are cached for a year. The two files to which
 * index.html refers by fixed names are cached for an hour.
 */
const files = (folder: string): Router => {
  const router = Router({ caseSensitive: true });
  router.use(helmet.xContentTypeOptions(), helmet.crossOriginResourcePolicy());
  router.use(precompressed(new Set(existsSync(folder) ? readdirSync(folder) : [])));
  router.use(
    express.static(folder, {
      index: false,
      redirect: false,
      etag: false,
      maxAge: YEAR_MS,
      immutable: true,
      setHeaders: (res, path) => {
        if (!/-[\w-]{8}\.\w+(?:\.\w+)?$/.test(path)) res.setHeader('Cache-Control', 'public, max-age=3600');
      },
    }),
    clearFileHeaders,
  );
  return router;
};

const NOT_BUILT =
  'The dashboard has not been built here. "node scripts/run.js build dashboard" builds it; then start the API again.\n';

type Dependencies = { tls: boolean; logger: Logger; folder?: string };

/**
 * Serves the dashboard: the same page for all its addresses, with a content security policy that allows only this
 * service.
 */
export const dashboardRoutes = ({ tls, logger, folder = BUILT }: Dependencies): Router => {
  const index = join(folder, 'index.html');
  if (!existsSync(index)) logger.warn({ folder }, 'the dashboard is not built: its pages answer 404');

  const asPage: RequestHandler = (req, res, next) => {
    const reads = req.method === 'GET' || req.method === 'HEAD';
    if (!reads || NOT_PAGES.test(req.path) || !req.accepts('html')) return next('router');
    if (req.originalUrl === DASHBOARD_PATH) return res.redirect(302, `${DASHBOARD_PATH}/`);
    res.locals.nonce = randomBytes(16).toString('base64');
    res.setHeader('Cache-Control', 'no-store');
    next();
  };
  const pages = Router({ caseSensitive: true });
  pages.use(asPage, pageHeaders(tls, POLICY), async (_req, res) => {
    // The page is read again for each request, because a newer build deletes the files that an old page refers to.
    const page = await readFile(index, 'utf8').catch(() => null);
    if (page === null) return void res.status(404).type('text/plain').send(NOT_BUILT);
    res.type('html').send(page.replaceAll(NONCE, nonceOf(res)));
  });

  const router = Router({ caseSensitive: true });
  router.get('/', (_req, res) => res.redirect(302, `${DASHBOARD_PATH}/`));
  router.use(`${DASHBOARD_PATH}/assets`, files(join(folder, 'assets')));
  router.use(DASHBOARD_PATH, pages);
  return router;
};
