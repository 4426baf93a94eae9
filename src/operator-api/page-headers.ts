import type { IncomingMessage, ServerResponse } from 'node:http';
import type { RequestHandler } from 'express';
import helmet from 'helmet';

type Source = string | ((req: IncomingMessage, res: ServerResponse) => string);
type Own = Record<'styleSrc' | 'baseUri' | 'formAction', Source[]>;

/**
 * What pages of the operator's side are sent with: a policy under which they speak to this service alone, and what each has
 * of its own. HSTS goes out under TLS only: over plain HTTP it leads a browser to an https that nobody answers.
 */
export const pageHeaders = (tls: boolean, { styleSrc, baseUri, formAction }: Own): RequestHandler =>
  helmet({
    strictTransportSecurity: tls,
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        scriptSrc: ["'self'"],
        styleSrc,
        imgSrc: ["'self'", 'data:'],
        fontSrc: ["'self'"],
        connectSrc: ["'self'"],
        baseUri,
        formAction,
        frameAncestors: ["'none'"],
      },
    },
  });
