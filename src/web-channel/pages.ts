import { type RequestHandler, Router } from 'express';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { AssistantStore } from '../assistants/store.ts';
import { builtFiles, OWN_ORIGIN, pageHeaders } from '../platform/http/http.ts';
import { networkOf } from '../platform/http/shares.ts';
import type { RateLimiter } from '../assistants/rate-limit.ts';
import type { OrUnavailable } from '../platform/mongo/silence.ts';
import { isUuid } from '../platform/process/ids.ts';
import type { Logger } from '../platform/process/logger.ts';

const BUILT = join(import.meta.dirname, '../../packages/widget/dist');

const LANGUAGE = /^[a-z]{2,3}(?:-[a-z0-9]{2,8}){0,3}$/i;

const escaped = (text: string): string => text.replace(/[&<>"]/g, (one) => `&#${one.charCodeAt(0)};`);

const page = ({ title, language, assistantId }: { title: string; language: string; assistantId: string }): string =>
  `<!doctype html>
<html lang="${language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1, interactive-widget=resizes-content">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>${escaped(title)}</title>
<link rel="icon" href="data:,">
</head>
<body>
<noscript>${escaped(title)}: JavaScript</noscript>
<script src="/widget.js" data-assistant="${assistantId}" data-view="page" async></script>
</body>
</html>
`;

type Dependencies = {
  assistants: Pick<AssistantStore, 'findAssistant'>;
  rateLimiter: Pick<RateLimiter, 'forWebReads'>;
  tls: boolean;
  orUnavailable: OrUnavailable;
  logger: Logger;
  folder?: string;
};

/**
 * Serves the widget's script, which pages of any site load, its files and the hosted page. The script has a fixed name
 * and a short life; it loads a file with a hash in its name, which never changes.
 */
export const webPages = ({
  assistants,
  rateLimiter,
  tls,
  orUnavailable,
  logger,
  folder = BUILT,
}: Dependencies): Router => {
  const loader = join(folder, 'widget.js');
  // The script and the file that it loads are read at the start, so both are of the same build.
  const text = existsSync(loader) ? readFileSync(loader, 'utf8') : null;
  if (text === null) logger.warn({ folder }, 'the widget is not built: /widget.js answers 404');

  const script: RequestHandler = (req, res, next) => {
    if (text === null || req.path !== '/' || (req.method !== 'GET' && req.method !== 'HEAD')) return next('router');
    res.set({
      'Access-Control-Allow-Origin': '*',
      'Cross-Origin-Resource-Policy': 'cross-origin',
      'X-Content-Type-Options': 'nosniff',
      'Cache-Control': 'public, max-age=300',
    });
    res.type('text/javascript').send(text);
  };

  const hosted: RequestHandler = async (req, res, next) => {
    const assistantId = req.path.slice(1);
    if (req.method !== 'GET' && req.method !== 'HEAD') return next('router');
    await rateLimiter.forWebReads(networkOf(req.ip));
    const assistant = isUuid(assistantId) ? await orUnavailable(assistants.findAssistant(assistantId)) : null;
    if (!assistant?.web.enabled) return next('router');
    const [wanted = ''] = req.acceptsLanguages();
    const language = LANGUAGE.test(wanted) ? wanted : 'en';
    res.set({ 'Cache-Control': 'no-cache', Vary: 'Accept-Language', 'Content-Language': language });
    res.type('html').send(page({ title: assistant.web.title || assistant.name, language, assistantId }));
  };
  const nothing = ["'none'"];
  const policy = {
    ...OWN_ORIGIN,
    styleSrc: ["'self'"],
    baseUri: nothing,
    formAction: nothing,
    trustedTypes: nothing,
  };

  const router = Router({ caseSensitive: true });
  router.use('/widget.js', script);
  router.use('/widget', builtFiles(join(folder, 'widget'), { for: 'any site' }));
  router.use('/w', pageHeaders(tls, policy), hosted);
  return router;
};
