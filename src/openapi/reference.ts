import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { type RequestHandler, Router } from 'express';
import { mount } from '../platform/operation.ts';
import { pageHeaders } from '../platform/page-headers.ts';
import { monitoringOperations } from '../monitoring/operations.ts';
import type { ApiDocument } from './document.ts';
import { referencePage, STYLE_HASH } from './reference/page.ts';

const POLICY = { styleSrc: [STYLE_HASH], imgSrc: ['data:'], baseUri: ["'none'"], formAction: ["'none'"] };

/**
 * Serves `/docs`, the readable form of the document. The page has some hundred kB, so it is rendered and compressed at
 * the first request and then kept in memory.
 */
export const referenceRoutes = (document: ApiDocument, { tls }: { tls: boolean }): Router => {
  let made: Promise<{ plain: string; compressed: Buffer }> | null = null;
  const make = async () => {
    const plain = referencePage(document);
    return { plain, compressed: await promisify(gzip)(plain) };
  };
  const answer: RequestHandler = async (req, res) => {
    made ??= make();
    const { plain, compressed } = await made;
    res.vary('Accept-Encoding').type('html');
    if (req.acceptsEncodings('gzip') !== 'gzip') return void res.send(plain);
    res.set('Content-Encoding', 'gzip').send(compressed);
  };
  const router = Router({ caseSensitive: true });
  mount(router, [{ operation: monitoringOperations.reference, handlers: [pageHeaders(tls, POLICY), answer] }]);
  return router;
};
