/* global SwaggerUIBundle */

// Starts Swagger UI in the page that reference.ts serves. The page is for reading: it sends no request of the API and
// asks for no key. So a security requirement becomes a sentence, and locks and servers are left out.

const dark = matchMedia('(prefers-color-scheme: dark)');
const followColours = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
dark.addEventListener('change', followColours);
followColours();

/**
 * What is shown of the document: no patterns, which nobody reads, and no note that an object is closed, because all are.
 * All errors have one schema, so their examples say more. Another schema without a name gets one: it is a button's text.
 */
const shown = (key, value) => {
  if (key === 'pattern' && typeof value === 'string') return undefined;
  if (key === 'additionalProperties' && value === false) return undefined;
  if (key !== 'schema') return value;
  if (value.$ref === '#/components/schemas/Error') return undefined;
  return '$ref' in value ? value : { title: 'Value', ...value };
};

const text = await (await fetch('/openapi.json')).text();
const { servers: _servers, ...spec } = JSON.parse(text, shown);
const { securitySchemes, ...components } = spec.components;

const waysIn = (security = []) => {
  const names = security.flatMap((one) => Object.keys(one));
  if (names.length === 0) return '';
  const ways = names.map((name) => `- \`${name}\`: ${securitySchemes[name].description}`);
  return `\n\nAuthorization, one of:\n\n${ways.join('\n')}`;
};

const listed = (paths, groupOf) =>
  Object.values(paths).flatMap((methods) => Object.values(methods).map((one) => ({ one, group: groupOf(one) })));
const operations = [
  ...listed(spec.paths, ({ tags }) => tags[0]),
  ...listed(spec.webhooks, () => 'webhooks'), // Swagger UI shows them apart, whatever their tag
];
for (const { one } of operations) {
  one.description = `${one.description ?? ''}${waysIn(one.security)}`;
  delete one.security;
}
const tags = spec.tags.filter(({ name }) => operations.some(({ group }) => group === name));

// `/docs#sendMessage` leads to the operation too.
const asked = operations.find(({ one }) => `#${one.operationId}` === location.hash);
if (asked) history.replaceState(null, '', `#/${asked.group}/${asked.one.operationId}`);

const accessible = ({ React: { createElement } }) => ({
  // A path is inside a button, where a screen reader finds no link.
  components: { DeepLink: ({ text }) => text },
  wrapComponents: {
    ExamplesSelect: (Original) => (props) =>
      createElement(
        'label',
        {},
        createElement('span', { className: 'unseen' }, 'Example'),
        createElement(Original, props),
      ),
  },
});

SwaggerUIBundle({
  spec: { ...spec, tags, components },
  domNode: document.getElementById('reference'),
  deepLinking: true,
  supportedSubmitMethods: [],
  defaultModelRendering: 'model',
  defaultModelExpandDepth: 5,
  defaultModelsExpandDepth: 0,
  plugins: [accessible],
});
