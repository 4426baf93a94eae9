import * as z from 'zod';
import { openReceiver, type ReceiverOptions } from '../kit/receiver.ts';

const Attribute = z.object({
  key: z.string(),
  value: z.object({ stringValue: z.string().optional(), intValue: z.number().optional() }),
});
const ExportedSpan = z.object({
  traceId: z.string(),
  spanId: z.string(),
  parentSpanId: z.string().optional(),
  name: z.string(),
  kind: z.number(),
  attributes: z.array(Attribute),
  links: z.array(z.object({ traceId: z.string(), spanId: z.string() })),
  status: z.object({ code: z.number() }),
});
const Export = z.object({
  resourceSpans: z.array(
    z.object({
      resource: z.object({ attributes: z.array(Attribute) }),
      scopeSpans: z.array(z.object({ spans: z.array(ExportedSpan) })),
    }),
  ),
});

type CollectedSpan = Omit<z.infer<typeof ExportedSpan>, 'attributes'> & {
  service: string | undefined;
  attributes: Record<string, string | number | undefined>;
};

const valuesOf = (attributes: z.infer<typeof Attribute>[]): CollectedSpan['attributes'] =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue ?? value.intValue]));

/** An OpenTelemetry collector: OTLP over HTTP, with JSON. */
export const openCollector = async (options: ReceiverOptions = {}) => {
  const receiver = await openReceiver({ respond: () => ({ body: '{}' }), ...options });
  return {
    ...receiver,
    /** What arrived, as text. */
    texts: () => receiver.received.map(({ body }) => body.toString()).join('\n'),
    spans: (): CollectedSpan[] =>
      receiver.received.flatMap(({ path, json }) => {
        if (path !== '/v1/traces') throw new Error(`spans were sent to ${path}`);
        return Export.parse(json).resourceSpans.flatMap(({ resource, scopeSpans }) => {
          const service = valuesOf(resource.attributes)['service.name'] as string | undefined;
          return scopeSpans.flatMap(({ spans }) =>
            spans.map((span) => ({ ...span, service, attributes: valuesOf(span.attributes) })),
          );
        });
      }),
  };
};
