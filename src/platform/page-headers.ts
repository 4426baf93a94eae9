import type { IncomingMessage, ServerResponse } from 'node:http';
import type { RequestHandler } from 'express';
import helmet from 'helmet';

type Source = string | ((req: IncomingMessage, res: ServerResponse) => string);
type Allowed = Record<'styleSrc' | 'baseUri' | 'formAction', Source[]> &
  Partial<Record<'scriptSrc' | 'imgSrc' | 'fontSrc' | 'connectSrc', Source[]>>;

/** For pages of the operator's side: they speak to this service alone. */
export const OWN_ORIGIN = {
  scriptSrc: ["'self'"],
  imgSrc: ["'self'", 'data:'],
  fontSrc: ["'self'"],
  connectSrc: ["'self'"],
};

/**
 * What a page is sent with: a policy that allows nothing but what is named. HSTS goes out under TLS only: over plain HTTP it
 * leads a browser to an https that nobody answers.
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
