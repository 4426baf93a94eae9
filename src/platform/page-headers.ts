import type { IncomingMessage, ServerResponse } from 'node:http';
import type { RequestHandler } from 'express';
import helmet from 'helmet';

type Source = string | ((req: IncomingMessage, res: ServerResponse) => string);
type Allowed = Record<'styleSrc' | 'baseUri' | 'formAction', Source[]> &
  Partial<Record<'scriptSrc' | 'imgSrc' | 'fontSrc' | 'connectSrc', Source[]>>;

/** For pages for operators, which load from this service alone. */
export const OWN_ORIGIN = {
  scriptSrc: ["'self'"],
  imgSrc: ["'self'", 'data:'],
  fontSrc: ["'self'"],
  connectSrc: ["'self'"],
};

/**
 * Headers of a page. The policy forbids everything that is not named. HSTS is sent only with TLS: over plain HTTP it
 * would send a browser to an https address that does not exist.
 */
export const pageHeaders = (tls: boolean, { scriptSrc, styleSrc, ...others }: Allowed): RequestHandler =>
  helmet({
    strictTransportSecurity: tls,
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        ...(scriptSrc && { scriptSrc }),
        styleSrc,
        ...others,
        frameAncestors: ["'none'"],
      },
    },
  });
