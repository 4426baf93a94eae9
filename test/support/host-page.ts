import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

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
  const server = createServer((req, res) => {
    if (req.url === '/style.css') return void res.setHeader('Content-Type', 'text/css').end(HOSTILE_STYLE);
    const all = Object.entries(attributes).map(([name, value]) => `data-${name}="${value}"`);
    res.setHeader('Content-Type', 'text/html; charset=utf-8').setHeader('Content-Security-Policy', policy);
    res.end(`<!doctype html><html lang="${language}"><head><meta charset="utf-8"><title>Shop</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<link rel="stylesheet" href="/style.css"></head><body><main><h1>Shop</h1><p>Lamps</p></main>
<script src="${service}/widget.js" ${all.join(' ')} async></script></body></html>`);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    origin,
    show: (given: Record<string, string>, lang = 'en'): void => {
      attributes = given;
      language = lang;
    },
    close: () => new Promise((resolve) => server.close(resolve)),
  };
};
