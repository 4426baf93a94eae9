import type { IncomingMessage, ServerResponse } from 'node:http';
import type { RequestHandler } from 'express';
import helmet from 'helmet';

type Source = string | ((req: IncomingMessage, res: ServerResponse) => string);
type Allowed = Record<'styleSrc' | 'baseUri' | 'formAction', Source[]> &
  Partial<Record<'scriptSrc' | 'imgSrc' | 'fontSrc' | 'connectSrc', Source[]>>;

/** The allowed sources for operators' pages. These pages load only from this service. */
export const OWN_ORIGIN = {
  scriptSrc: ["'self'"],
  imgSrc: ["'self'", 'data:'],
  fontSrc: ["'self'"],
  connectSrc: ["'self'"],
};

/**
 * Sets the headers of a page. The policy forbids every source that is not listed. HSTS is sent only with TLS: over
 * plain HTTP, this header would send a browser to an https address that does not exist.
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
