import { type Answer, openReceiver } from '../kit/receiver.ts';

/** Styles that would reach the widget if anything could. */
const HOSTILE_STYLE = `* { color: rgb(255, 0, 0) !important; letter-spacing: 9px; }
button, textarea, section { display: none !important; } body { font-size: 40px; }`;

/** A page of another origin that shows the widget, under the strictest policy that a site may have. */
export const openHostPage = async (service: string) => {
  let attributes: Record<string, string> = {};
  let language = 'en';
  const policy = [
    "default-src 'none'",
    `script-src ${service}`,
    `connect-src ${service}`,
    "style-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "require-trusted-types-for 'script'",
  ].join('; ');
  const page = (): string =>
    `<!doctype html><html lang="${language}"><head><meta charset="utf-8"><title>Shop</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<link rel="stylesheet" href="/style.css"></head><body><main><h1>Shop</h1><p>Lamps</p></main>
<script src="${service}/widget.js" ${Object.entries(attributes)
      .map(([name, value]) => `data-${name}="${value}"`)
      .join(' ')} async></script></body></html>`;
  const { url: origin, close } = await openReceiver({
    respond: ({ path }): Answer =>
      path === '/style.css'
        ? { headers: { 'Content-Type': 'text/css' }, body: HOSTILE_STYLE }
        : { headers: { 'Content-Type': 'text/html; charset=utf-8', 'Content-Security-Policy': policy }, body: page() },
  });
  return {
    origin,
    show: (given: Record<string, string>, lang = 'en'): void => {
      attributes = given;
      language = lang;
    },
    close,
  };
};
