import { VERSION } from '../platform/process/lifecycle.ts';
import { EVENT_KINDS } from '../conversations/event.ts';
import { apiDocument } from './document.ts';

type Json = Record<string, unknown>;
type Parameter = { name: string; required?: boolean; description?: string; schema: Json };
type Webhook = {
  operationId: string;
  summary: string;
  description: string;
  parameters: Parameter[];
  requestBody: { content: { 'application/json': { schema: { $ref: string }; example: Json } } };
};

const DESCRIPTION = `What Parley sends to the endpoints of an assistant. Each event is one POST to the URL of each endpoint that wants its kind,
at most once, and in order for each conversation. \`components.schemas\` has the JSON Schema of each kind. New kinds and
fields may come: ignore those that you do not know.`;

/** The names of schemas that a value refers to, and those that these refer to. */
const namesIn = (value: unknown, schemas: Record<string, unknown>, found = new Set<string>()): Set<string> => {
  for (const [, name = ''] of JSON.stringify(value).matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
    if (found.has(name)) continue;
    found.add(name);
    namesIn(schemas[name], schemas, found);
  }
  return found;
};

const messageOf = ({ summary, parameters, requestBody }: Webhook, kind: string): Json => {
  const { schema: payload, example } = requestBody.content['application/json'];
  return {
    name: kind,
    title: kind,
    summary,
    contentType: 'application/json',
    headers: {
      type: 'object',
      properties: Object.fromEntries(
        parameters.map(({ name, schema, description }) => [name, { ...schema, ...(description && { description }) }]),
      ),
      required: parameters.filter(({ required }) => required).map(({ name }) => name),
    },
    payload,
    examples: [{ name: 'example', payload: example }],
  };
};

/** The events as an AsyncAPI 3.0 document. It says what the webhooks of the API document say. */
const createEventsDocument = (): Json => {
  const api = apiDocument();
  // Read as plain JSON: `createDocument` has made the webhooks of `EVENT_BODIES`.
  const webhooks = api.webhooks as unknown as Record<string, { post: Webhook }>;
  const schemas = (api.components?.schemas ?? {}) as Record<string, unknown>;
  const all = EVENT_KINDS.map((kind) => [kind, webhooks[kind]?.post as Webhook] as const);
  const messages = Object.fromEntries(all.map(([kind, one]) => [one.operationId, messageOf(one, kind)]));
  const names = [...namesIn(messages, schemas)].toSorted();
  const namesOfMessages = Object.keys(messages);
  return {
    asyncapi: '3.0.0',
    info: {
      title: 'Parley events',
      version: VERSION,
      description: DESCRIPTION,
      license: { name: 'MIT', url: 'https://opensource.org/license/mit' },
    },
    defaultContentType: 'application/json',
    channels: {
      endpoint: {
        title: 'An endpoint',
        description: 'It has the https URL that the owner of an assistant has added.',
        messages: Object.fromEntries(namesOfMessages.map((name) => [name, { $ref: `#/components/messages/${name}` }])),
      },
    },
    operations: {
      sendEvent: {
        action: 'send',
        title: 'Send an event',
        summary: 'POST an event to an endpoint.',
        description: all[0]?.[1].description,
        channel: { $ref: '#/channels/endpoint' },
        bindings: { http: { method: 'POST', bindingVersion: '0.3.0' } },
        messages: namesOfMessages.map((name) => ({ $ref: `#/channels/endpoint/messages/${name}` })),
      },
    },
    components: { messages, schemas: Object.fromEntries(names.map((name) => [name, schemas[name]])) },
  };
};

let built: { text: Buffer; schemas: Buffer } | undefined;

const build = (): NonNullable<typeof built> => {
  const document = createEventsDocument() as { components: { messages: Record<string, Json>; schemas: Json } };
  const { messages, schemas } = document.components;
  const all = {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'Parley events',
    oneOf: Object.values(messages).map(({ payload }) => payload),
    $defs: schemas,
  };
  return {
    text: Buffer.from(JSON.stringify(document)),
    schemas: Buffer.from(JSON.stringify(all).replaceAll('"#/components/schemas/', '"#/$defs/')),
  };
};

/** The document as it is sent. */
export const eventsDocumentText = (): Buffer => (built ??= build()).text;

/** The JSON Schema of all events, for validators and generators that know neither OpenAPI nor AsyncAPI. */
export const eventSchemasText = (): Buffer => (built ??= build()).schemas;
