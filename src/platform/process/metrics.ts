import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import { bearerIn } from './credentials.ts';
import { withDeadline } from './deadline.ts';

const SAMPLE_WITHIN_MS = 1_000;
/**
 * Bucket limits in seconds, from answers that come from memory to answers that are so slow that no caller waits for
 * them.
 */
const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** Headers that show that a proxy forwarded the request. */
const PROXIED = ['forwarded', 'x-forwarded-for', 'x-forwarded-host', 'x-real-ip', 'via'];

const namesOf = <Label extends string>(labels: Labels<Label>): Label[] => Object.keys(labels) as Label[];

const isLoopback = (address = ''): boolean => address === '::1' || /^(::ffff:)?127\./.test(address);

const sameSecret = (one: string, other: string): boolean => {
  const [a, b] = [one, other].map((secret) => createHash('sha256').update(secret).digest()) as [Buffer, Buffer];
  return timingSafeEqual(a, b);
};

/**
 * Allows requests from this machine that no proxy forwarded, and requests with `METRICS_TOKEN` (docs/contract.md,
 * Health and metrics).
 */
const mayRead = ({ socket, headers }: IncomingMessage, token: string | undefined): boolean => {
  const bearer = bearerIn(headers.authorization);
  if (token !== undefined && bearer !== null && sameSecret(bearer, token)) return true;
  return isLoopback(socket.remoteAddress) && PROXIED.every((name) => headers[name] === undefined);
};

type Labels<Label extends string> = Record<Label, string>;
/** `labels` describes the values of each label. docs/metrics.md is generated from these texts. */
type Naming<Label extends string> = { name: string; help: string; labels: Labels<Label> };
type Sample<Label extends string> = { labels: Labels<Label>; value: number };

/**
 * The metrics of one process, for Prometheus. Code that counts gets a small function and does not know the library.
 * Each call creates a registry of its own, so that tests can run several services in one process.
 */
export type Metrics = {
  contentType: string;
  counter: <Label extends string>(naming: Naming<Label>) => (values: Labels<Label>, by?: number) => void;
  histogram: <Label extends string>(
    options: Naming<Label> & { buckets?: number[] },
  ) => (values: Labels<Label>, seconds: number) => void;

  /** Adds a metric that is read at each scrape. If reading takes more than a second, the metric is left out. */
  sampled: <Label extends string>(naming: Naming<Label>, read: () => Promise<Sample<Label>[]>) => void;

  /** The text of the metrics, or null when the client may not read them. */
  answer: (request: IncomingMessage) => Promise<string | null>;
};

export const createMetrics = ({ token }: { token?: string | undefined } = {}): Metrics => {
  const registry = new Registry();
  const registers = [registry];
  let scraping: Promise<string> | null = null;
  /** Concurrent scrapes share one answer, because each answer is made in one step and reads the stores. */
  const scrape = (): Promise<string> =>
    (scraping ??= registry.metrics().finally(() => {
      scraping = null;
    }));
  collectDefaultMetrics({ register: registry });

  return {
    contentType: registry.contentType,

    counter: <Label extends string>({ name, help, labels }: Naming<Label>) => {
      const counter = new Counter({ name, help, labelNames: namesOf(labels), registers });
      return (values: Labels<Label>, by = 1): void => counter.inc(values, by);
    },

    histogram: <Label extends string>({
      name,
      help,
      labels,
      buckets = SECONDS,
    }: Naming<Label> & { buckets?: number[] }) => {
      const histogram = new Histogram({ name, help, labelNames: namesOf(labels), buckets, registers });
      return (values: Labels<Label>, seconds: number): void => histogram.observe(values, seconds);
    },

    sampled: <Label extends string>(
      { name, help, labels }: Naming<Label>,
      read: () => Promise<Sample<Label>[]>,
    ): void => {
      const collect = async (gauge: Gauge<Label>): Promise<void> => {
        gauge.reset();
        const samples = await withDeadline(read(), SAMPLE_WITHIN_MS).catch(() => []);
        for (const { labels: values, value } of samples) gauge.set(values, value);
      };
      void new Gauge({
        name,
        help,
        labelNames: namesOf(labels),
        registers,
        collect() {
          return collect(this);
        },
      });
    },

    answer: async (request) => (mayRead(request, token) ? scrape() : null),
  };
};
