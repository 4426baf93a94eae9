import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { type RequestHandler, type Response, Router } from 'express';
import helmet from 'helmet';
import { OWN_ORIGIN, pageHeaders, sendBytes } from '../platform/http/http.ts';
import { mount } from '../platform/http/operation.ts';
import { monitoringOperations } from './monitoring.ts';

const PATH = '/docs';

const packaged = (name: string): string => createRequire(import.meta.url).resolve(`swagger-ui-dist/${name}`);
const own = (name: string): string => join(import.meta.dirname, name);

/** Everything that the page loads. Nothing else of the package is served. */
const FILES = {
  'swagger-ui.css': packaged('swagger-ui.css'),
  'reference.css': own('reference.css'),
  'swagger-ui-bundle.js': packaged('swagger-ui-bundle.js'),
  'reference.js': own('reference.js'),
};

type Sent = { plain: Buffer; compressed: Buffer };
type Reference = { page: Sent; files: Map<string, Sent> };

const compress = async (plain: Buffer): Promise<Sent> => ({ plain, compressed: await promisify(gzip)(plain) });

const pageOf = (folder: string): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Parley API reference</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${folder}/swagger-ui.css">
<link rel="stylesheet" href="${folder}/reference.css">
<script src="${folder}/swagger-ui-bundle.js" defer></script>
<script src="${folder}/reference.js" type="module"></script>
</head>
<body>
<header><strong>API reference</strong> <a href="/openapi.json">OpenAPI document</a> <a href="/operator/">Dashboard</a></header>
<main id="reference"><noscript>This page needs JavaScript. The <a href="/openapi.json">OpenAPI document</a> says the same.</noscript></main>
</body>
</html>
`;

/** Reads the files. The hash of their contents is in their addresses, so a browser may keep them. */
const read = async (): Promise<Reference> => {
  const contents = await Promise.all(Object.values(FILES).map((file) => readFile(file)));
  const hash = createHash('sha256').update(Buffer.concat(contents)).digest('base64url').slice(0, 8);
  const folder = `${PATH}/assets-${hash}`;
  const sent = await Promise.all(contents.map(compress));
  return {
    page: await compress(Buffer.from(pageOf(folder))),
    files: new Map(Object.keys(FILES).map((name, index) => [`${folder}/${name}`, sent[index] as Sent])),
  };
};

const send = (res: Response, type: string, { plain, compressed }: Sent): Promise<void> => {
  const zipped = res.req.acceptsEncodings('gzip') === 'gzip';
  if (zipped) res.set('Content-Encoding', 'gzip');
  res.vary('Accept-Encoding').type(type);
  return sendBytes(res, zipped ? compressed : plain);
};

const POLICY = { ...OWN_ORIGIN, styleSrc: ["'self'"], baseUri: ["'none'"], formAction: ["'none'"] };

/**
 * Serves `/docs`: Swagger UI, which shows the OpenAPI document. The files have 2 MB, so they are read and compressed at the
 * first request and then kept in memory.
 */
export const referenceRoutes = ({ tls }: { tls: boolean }): Router => {
  let reference: Promise<Reference> | null = null;
  /** A failure, for example if too many files are open, is not kept. */
  const reading = (): Promise<Reference> =>
    (reference ??= read().catch((cause: unknown) => {
      reference = null;
      throw cause;
    }));
  const page: RequestHandler = async (_req, res) => send(res, 'html', (await reading()).page);
  const file: RequestHandler = async (req, res, next) => {
    const { files } = await reading();
    const found = files.get(req.originalUrl);
    if (!found || (req.method !== 'GET' && req.method !== 'HEAD')) return next();
    res.set('Cache-Control', 'public, max-age=31536000, immutable');
    return send(res, req.path.slice(req.path.lastIndexOf('.')), found);
  };
  const router = Router({ caseSensitive: true });
  mount(router, [{ operation: monitoringOperations.reference, handlers: [pageHeaders(tls, POLICY), page] }]);
  router.use(PATH, helmet.crossOriginResourcePolicy(), file);
  return router;
};
