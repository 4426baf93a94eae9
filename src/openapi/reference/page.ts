import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ApiDocument } from '../document.ts';
import { html, Html, inline, prose } from './html.ts';
import { type Operation, operation, type Shared } from './operation.ts';
import { inside, type Schemas } from './schema.ts';

const STYLE = readFileSync(join(import.meta.dirname, 'style.css'), 'utf8');

/**
 * The hash by which the content security policy allows the page's only style sheet. No other style and no script may
 * run.
 */
export const STYLE_HASH = `'sha256-${createHash('sha256').update(STYLE).digest('base64')}'`;

const WAYS_IN: Record<string, string> = {
  apiKey: 'an API key (`Authorization: Bearer sk_…`)',
  verifyToken: 'the channel’s verify token, where it has one (`Authorization: Bearer …`)',
  session: 'an operator’s session (cookie)',
  metricsToken: 'the metrics token (`Authorization: Bearer …`) or a loopback peer',
};

type Listed = { method: string; path: string; operation: Operation };

/** The type of this document. The library's own types cover every possible document and are too wide here. */
type Read = {
  info: { title: string; version: string; description: string };
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, Operation>>;
  webhooks: Record<string, Record<string, Operation>>;
  components: { schemas: Schemas };
};

const listed = (paths: Read['paths']): Listed[] =>
  Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, one]) => ({ method, path, operation: one })),
  );

const contents = (groups: [Read['tags'][number], Listed[]][]): Html => html`<nav aria-label="Contents">
${groups.map(
  ([{ name }, some]) => html`<details><summary>${name}</summary><ul>
${some.map(({ operation: one }) => html`<li><a href="#${one.operationId}">${inline(one.summary)}</a></li>`)}
</ul></details>`,
)}
</nav>`;

const chapter = ([{ name, description }, some]: [Read['tags'][number], Listed[]], shared: Shared): Html =>
  html`<section class="chapter" id="${name.toLowerCase()}"><h2>${name}</h2>${prose(description)}
${some.map(({ method, path, operation: one }) => operation(method, path, one, shared))}
</section>`;

/** Renders the whole API on one page. The page has no script and loads nothing. */
export const referencePage = (document: ApiDocument): string => {
  const { info, tags, paths, webhooks, components } = JSON.parse(JSON.stringify(document)) as Read;
  const shared: Shared = { schemas: components.schemas, security: WAYS_IN };
  const all = Map.groupBy([...listed(paths), ...listed(webhooks)], ({ operation: one }) => one.tags[0] ?? '');
  const groups = tags.map((tag): [typeof tag, Listed[]] => [tag, all.get(tag.name) ?? []]);
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${info.title} API reference</title>
<link rel="icon" href="data:,">
<style>${new Html(STYLE)}</style>
</head>
<body>
<a class="skip" href="#page">Skip to the reference</a>
<header><strong>${info.title}</strong> <span class="type">API reference, version ${info.version}</span>
<span class="links"><a href="/openapi.json">OpenAPI document</a> <a href="/operator/">Dashboard</a></span></header>
<div class="columns">
${contents(groups)}
<main id="page" tabindex="-1">
<h1>${info.title} API</h1>
${prose(info.description)}
<h2>Every error</h2>
${inside(components.schemas.Error ?? {}, components.schemas)}
${groups.map((group) => chapter(group, shared))}
</main>
</div>
</body>
</html>
`.text;
};
