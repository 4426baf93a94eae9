import type { Attributes, Link, SpanContext, SpanKind } from '@opentelemetry/api';
import type { Agent as HttpsAgent } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import type { SecureContextOptions } from 'node:tls';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { ExportResult } from '@opentelemetry/core';
import type { ReadableSpan, Sampler, SpanExporter } from '@opentelemetry/sdk-trace';
import { Agent, request } from 'undici';
import type { Config } from './config.ts';
import { withDeadline } from './deadline.ts';
import { ApiError } from './errors.ts';
import type { Lifecycle } from './lifecycle.ts';
import type { Logger } from './logger.ts';
import { withoutSlashes } from './validation.ts';

// OpenTelemetry's SDK is loaded only if traces are on. Its automatic instrumentation is not used: it patches modules
// when they are loaded, which for ES modules needs a loader in every process. It also cannot know that a batch serves
// many turns.

/**
 * Spans that may wait for the collector. Each has a few short attributes and at most `LINKS_MAX` links, so together
 * some MB.
 */
const QUEUED_SPANS_MAX = 2_048;
/** Spans that are encoded and sent at once. A few, so that encoding them takes a millisecond or two. */
const SENT_AT_ONCE = 128;
const LINKS_MAX = 32;
const ATTRIBUTE_MAX_CHARS = 128;
const SEND_EVERY_MS = 1_000;
/** How long a stopping process waits for the collector. */
const FLUSHED_WITHIN_MS = 1_000;
const WARN_AGAIN_MS = 60_000;
/** The maximum number of connections to the collector. */
const COLLECTOR_CONNECTIONS = 4;
/** The collector's answers are not used. This much of an answer is read, so that its connection can be used again. */
const ANSWER_READ_BYTES = 4 * 1024;
/** The collector is busy, or a proxy in front of it cannot reach it. */
const BUSY = [429, 502, 503, 504];
/** The pause before the second try. Each further one is twice as long. */
const AGAIN_AFTER_MS = 1_000;

/** The names of all spans. No name comes from outside, and each says what was done, not to whom. */
type SpanName =
  | 'turn' // from the request to its response, in the API
  | 'gate' // the wait for a share of the service
  | 'accept' // the message becomes a pending turn
  | 'wake turns' // jobs for several turns at once
  | 'answer' // one turn, in the reply worker
  | 'engine'
  | 'commit'
  | 'write conversations' // one command to MongoDB for several turns
  | 'deliver' // one event to one endpoint, in the delivery worker
  | 'claim'
  | 'POST';

type StartOptions = {
  kind?: 'server' | 'producer' | 'consumer' | 'client';
  /** Ids, states and numbers. Never a text from outside, and no secret. */
  attributes?: Attributes;
  /** What caused this span, beside its parent, as `traceparent`s. */
  links?: (string | null | undefined)[];
};

/** A step of a trace. If it is not recorded, its methods do nothing, so callers need no check. */
export type TraceSpan = {
  /** What continues the trace elsewhere, as a `traceparent`. Null if nothing is recorded. */
  context: string | null;
  /** For the fields of a log line: the trace's id, or nothing. */
  ids: { traceId?: string };
  note: (attributes: Attributes) => void;
  link: (context: string | null | undefined) => void;
  /** Ends the span, with the kind of its failure if it failed. Further calls do nothing. */
  end: (failure?: string) => void;
};

export const NO_SPAN: TraceSpan = {
  context: null,
  ids: {},
  note: () => undefined,
  link: () => undefined,
  end: () => undefined,
};

/** The traces of a process (docs/operating.md, Traces). */
export type Tracing = {
  /** Begins a trace, or continues the trace of a valid `traceparent`. The sampler decides whether it is recorded. */
  begin: (name: SpanName, traceparent: string | null | undefined, options?: StartOptions) => TraceSpan;

  /** A step within a recorded trace. `parent` is the context of a span, perhaps of another process. */
  step: (name: SpanName, parent: string | null | undefined, options?: StartOptions) => TraceSpan;

  /**
   * A span for work that serves several spans. It is a child of the first span. It and the other spans are linked both
   * ways.
   */
  share: (name: SpanName, spans: TraceSpan[], options?: StartOptions) => TraceSpan;
};

export const NO_TRACING: Tracing = { begin: () => NO_SPAN, step: () => NO_SPAN, share: () => NO_SPAN };

/** Ends the span if its work fails. */
export const orFailed = async <Result>(span: TraceSpan, work: Promise<Result>): Promise<Result> => {
  try {
    return await work;
  } catch (cause) {
    span.end(cause instanceof ApiError ? cause.code : 'error');
    throw cause;
  }
};

/** Ends the span with its work. */
export const within = async <Result>(span: TraceSpan, work: Promise<Result>): Promise<Result> => {
  const result = await orFailed(span, work);
  span.end();
  return result;
};

const SAMPLED = 1;
/** Version, trace id, parent id and flags (W3C Trace Context). What a later version appends is left out. */
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

/** Parses a `traceparent`. Anybody can send one, so it may be invalid. The result is then null. */
const spanContextOf = (traceparent: string | null | undefined): SpanContext | null => {
  const [, version, traceId = '', spanId = '', flags = '', more] = TRACEPARENT.exec(traceparent ?? '') ?? [];
  if (version === undefined || version === 'ff' || (version === '00' && more !== undefined)) return null;
  if (/^0*$/.test(traceId) || /^0*$/.test(spanId)) return null;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & SAMPLED, isRemote: true };
};

const isSampled = ({ traceFlags }: SpanContext): boolean => (traceFlags & SAMPLED) === SAMPLED;

const contextOf = ({ traceId, spanId }: SpanContext): string => `00-${traceId}-${spanId}-01`;

const linksOf = (contexts: StartOptions['links'] = []): Link[] =>
  contexts
    .map(spanContextOf)
    .filter((context) => context !== null)
    .slice(0, LINKS_MAX)
    .map((context) => ({ context }));

type Sdk = {
  api: typeof import('@opentelemetry/api');
  trace: typeof import('@opentelemetry/sdk-trace');
};

/** The sampler that the standard variables name. A span that is linked to a recorded trace is recorded too. */
const createSampler = (
  { trace: sdk }: Sdk,
  config: Pick<Config, 'OTEL_TRACES_SAMPLER' | 'OTEL_TRACES_SAMPLER_ARG'>,
) => {
  const { OTEL_TRACES_SAMPLER: name, OTEL_TRACES_SAMPLER_ARG: ratio } = config;
  const roots: Record<string, () => Sampler> = {
    always_on: () => new sdk.AlwaysOnSampler(),
    always_off: () => new sdk.AlwaysOffSampler(),
    traceidratio: () => new sdk.TraceIdRatioBasedSampler(ratio),
  };
  const root = (roots[name.replace('parentbased_', '')] as () => Sampler)();
  const chosen = name.startsWith('parentbased_') ? new sdk.ParentBasedSampler({ root }) : root;
  const always = new sdk.AlwaysOnSampler();
  const sampler: Sampler = {
    shouldSample: (context, traceId, spanName, kind, attributes, links) =>
      links.some((link) => isSampled(link.context))
        ? always.shouldSample()
        : chosen.shouldSample(context, traceId, spanName, kind, attributes, links),
    toString: () => name,
  };
  return sampler;
};

const gzipped = promisify(gzip);

type Collector = {
  url: string;
  headers: () => Promise<Record<string, string>>;
  compression: 'gzip' | 'none';
  /** For all tries together. */
  timeoutMillis: number;
  /** The certificates of the settings. */
  tls: Pick<SecureContextOptions, 'ca' | 'cert' | 'key'>;
};

/** The collector does not take these spans. */
class SpansRefused extends Error {
  override name = 'SpansRefused';
}

/** A failure that may pass, and when to try again. */
type Later = { cause: unknown; afterMs: number | null };

type CollectorClient = {
  /** Posts spans. Repeats what may pass, until the time is over. */
  post: (spans: Uint8Array) => Promise<void>;
  close: () => Promise<void>;
};

/**
 * A client of an OpenTelemetry collector, with one deadline for all that the collector does. The SDK's own client waits
 * as long as bytes arrive, and keeps all of an answer.
 */
const createCollectorClient = ({ url, headers, compression, timeoutMillis, tls }: Collector): CollectorClient => {
  const { username, password, origin, pathname, search } = new URL(url);
  const user = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  const authorization = user !== ':' && { Authorization: `Basic ${Buffer.from(user).toString('base64')}` };
  const agent = new Agent({ connections: COLLECTOR_CONNECTIONS, pipelining: 1, allowH2: false, connect: tls });
  const closing = new AbortController();

  const send = async (body: Uint8Array, signal: AbortSignal): Promise<Later | null> => {
    const coding = compression === 'gzip' && { 'Content-Encoding': 'gzip' };
    // A collector needs no interim responses, and could send them without end. So the first one ends the request.
    const interim = new AbortController();
    const given = { ...authorization, ...(await headers()), ...coding };
    try {
      const answer = await request(`${origin}${pathname}${search}`, {
        method: 'POST',
        headers: given,
        body,
        dispatcher: agent,
        signal: AbortSignal.any([signal, interim.signal]),
        onInfo: () => interim.abort(),
      });
      await answer.body.dump({ limit: ANSWER_READ_BYTES, signal });
      if (answer.statusCode < 300) return null;
      const cause = new SpansRefused(`the collector answered with ${answer.statusCode}`);
      if (!BUSY.includes(answer.statusCode)) throw cause;
      const seconds = Number(answer.headers['retry-after'] ?? Number.NaN);
      return { cause, afterMs: seconds >= 0 ? seconds * 1_000 : null };
    } catch (cause) {
      if (cause instanceof SpansRefused || signal.aborted) throw cause;
      return { cause, afterMs: null };
    }
  };

  const postUntil = async (spans: Uint8Array, signal: AbortSignal): Promise<void> => {
    const ends = performance.now() + timeoutMillis;
    const body = compression === 'gzip' ? await gzipped(spans) : spans;
    for (let waitMs = AGAIN_AFTER_MS; ; waitMs *= 2) {
      const later = await send(body, signal);
      if (!later) return;
      const { cause, afterMs } = later;
      if (performance.now() + (afterMs ?? waitMs) > ends) throw cause;
      await sleep(afterMs ?? waitMs, undefined, { signal });
    }
  };

  return {
    post: (spans) => withDeadline((signal) => postUntil(spans, signal), timeoutMillis, { signal: closing.signal }),

    close: async () => {
      closing.abort(new Error('the process stops'));
      await agent.destroy();
    },
  };
};

type Options = { config: Config; name: string; logger: Logger; lifecycle: Lifecycle };

/** Sends spans in the background. Nothing waits for the collector: what does not fit into the queue is dropped. */
const openProvider = async (
  sdk: Sdk,
  { config, name, logger, lifecycle }: Options & { config: { OTEL_EXPORTER_OTLP_ENDPOINT: string } },
) => {
  const [{ ExportResultCode }, { JsonTraceSerializer }, { convertLegacyHttpOptions }, resources] = await Promise.all([
    import('@opentelemetry/core'),
    import('@opentelemetry/otlp-transformer'),
    import('@opentelemetry/otlp-exporter-base/node-http'),
    import('@opentelemetry/resources'),
  ]);
  const url = `${withoutSlashes(config.OTEL_EXPORTER_OTLP_ENDPOINT)}/v1/traces`;
  // This also reads OpenTelemetry's standard variables.
  const given = convertLegacyHttpOptions({ url }, 'TRACES', 'v1/traces', { 'Content-Type': 'application/json' });
  const { ca, cert, key } = ((await given.agentFactory(new URL(url).protocol)) as HttpsAgent).options;
  const collector = createCollectorClient({ ...given, tls: { ca, cert, key } });
  lifecycle.add('connections to the collector', collector, ({ close }) => close());
  let warnedAt = Number.NEGATIVE_INFINITY;
  const warn = (cause: unknown): void => {
    if (performance.now() - warnedAt < WARN_AGAIN_MS) return;
    warnedAt = performance.now();
    logger.warn({ err: cause }, 'traces could not be sent');
  };
  const send = async (spans: ReadableSpan[], done: (result: ExportResult) => void): Promise<void> => {
    let code = ExportResultCode.SUCCESS;
    try {
      await collector.post(JsonTraceSerializer.serializeRequest(spans) ?? new Uint8Array());
    } catch (cause) {
      warn(cause);
      code = ExportResultCode.FAILED;
    }
    done({ code });
  };
  const exporter: SpanExporter = {
    export: (spans, done) => void send(spans, done),
    shutdown: () => Promise.resolve(),
  };
  const named = (service: string) => resources.resourceFromAttributes({ 'service.name': service });
  const standard = resources.detectResources({ detectors: [resources.envDetector] });
  const { OTEL_SERVICE_NAME } = config;
  return new sdk.trace.TracerProvider({
    resource: resources
      .defaultResource()
      .merge(named(name))
      .merge(standard)
      .merge(OTEL_SERVICE_NAME === undefined ? null : named(OTEL_SERVICE_NAME)),
    sampler: createSampler(sdk, config),
    spanLimits: { attributeValueLengthLimit: ATTRIBUTE_MAX_CHARS, linkCountLimit: LINKS_MAX },
    spanProcessors: [
      new sdk.trace.BatchSpanProcessor({
        exporter,
        maxQueueSize: QUEUED_SPANS_MAX,
        maxExportBatchSize: SENT_AT_ONCE,
        scheduledDelayMillis: SEND_EVERY_MS,
      }),
    ],
  });
};

/** Opens the traces of a process, or `NO_TRACING` if no collector is set: then nothing of OpenTelemetry is loaded. */
export const openTracing = async ({ config, name, logger, lifecycle }: Options): Promise<Tracing> => {
  const { OTEL_EXPORTER_OTLP_ENDPOINT } = config;
  if (OTEL_EXPORTER_OTLP_ENDPOINT === undefined) return NO_TRACING;
  const [api, trace] = await Promise.all([import('@opentelemetry/api'), import('@opentelemetry/sdk-trace')]);
  const provider = await openProvider(
    { api, trace },
    { config: { ...config, OTEL_EXPORTER_OTLP_ENDPOINT }, name, logger, lifecycle },
  );
  lifecycle.add('traces', provider, (opened) =>
    withDeadline(opened.shutdown(), FLUSHED_WITHIN_MS).catch(() => undefined),
  );
  const tracer = provider.getTracer('parley');
  const kinds: Record<NonNullable<StartOptions['kind']>, SpanKind> = {
    server: api.SpanKind.SERVER,
    producer: api.SpanKind.PRODUCER,
    consumer: api.SpanKind.CONSUMER,
    client: api.SpanKind.CLIENT,
  };

  const start = (
    spanName: SpanName,
    parent: SpanContext | null,
    { kind, attributes, links }: StartOptions,
  ): TraceSpan => {
    const around = parent ? api.trace.setSpanContext(api.ROOT_CONTEXT, parent) : api.ROOT_CONTEXT;
    const options = {
      links: linksOf(links),
      ...(kind && { kind: kinds[kind] }),
      ...(attributes && { attributes }),
    };
    const span = tracer.startSpan(spanName, options, around);
    const context = span.spanContext();
    if (!isSampled(context)) return NO_SPAN;
    let ended = false;
    return {
      context: contextOf(context),
      ids: { traceId: context.traceId },
      note: (more) => void span.setAttributes(more),
      link: (other) => void span.addLinks(linksOf([other])),
      end: (failure) => {
        if (ended) return;
        ended = true;
        if (failure !== undefined) {
          span.setAttribute('error.type', failure);
          span.setStatus({ code: api.SpanStatusCode.ERROR });
        }
        span.end();
      },
    };
  };

  const step: Tracing['step'] = (spanName, parent, options = {}) => {
    const context = spanContextOf(parent);
    return context ? start(spanName, context, options) : NO_SPAN;
  };

  return {
    begin: (spanName, traceparent, options = {}) => start(spanName, spanContextOf(traceparent), options),

    step,

    share: (spanName, spans, options = {}) => {
      const [first, ...others] = spans.filter(({ context }) => context !== null);
      if (!first) return NO_SPAN;
      const shared = step(spanName, first.context, { ...options, links: others.map(({ context }) => context) });
      for (const other of others.slice(0, LINKS_MAX)) other.link(shared.context);
      return shared;
    },
  };
};
