import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import { createBullBoard } from '@bull-board/api';
import { ExpressAdapter } from '@bull-board/express';
import { type Request, type RequestHandler, type Response, Router } from 'express';
import type { KnowledgeJob } from '../../assistants/knowledge/semantic-state.ts';
import type { WakeUpJob } from '../../events/queue.ts';
import type { OperatorAccess } from '../../operators/access.ts';
import { notFound } from '../../platform/process/errors.ts';
import { methodNotAllowed, OWN_ORIGIN, pageHeaders } from '../../platform/http/http.ts';
import type { PartitionedQueue } from '../../platform/redis/queue.ts';
import type { Service } from '../../service.ts';
import type { SourceJob } from '../../sources/source.ts';
import type { TurnsJob } from '../../turns/queue.ts';

type Failure = { failedReason?: string; stacktrace?: unknown };
type Shown = { toJSON: () => Failure };

const FRAME = /^\s+at (?:.+ \()?(?:file|node):[^()\s]+:\d+:\d+\)?$/;
const NAME = /^[A-Z]\w{0,60}(?=[:\s]|$)/;
/** Matches a message that BullMQ itself writes. This message contains no data of a job, so it may be shown. */
const OWN_WORDS = /^job stalled more than allowable limit/;

/**
 * The error's name and stack frames. The message is left out, because it may quote anything; it can be read in the
 * worker's log.
 */
const withoutMessage = (stack: unknown, message: string): string => {
  const text = String(stack);
  const from = message === '' ? -1 : text.indexOf(message);
  const frames =
    from === -1
      ? []
      : text
          .slice(from + message.length)
          .split('\n')
          .filter((line) => FRAME.test(line));
  return [NAME.exec(text)?.[0] ?? 'Error', ...frames].join('\n');
};

const redact = <Job extends Shown>(job: Job): Job => {
  const whole = job.toJSON.bind(job);
  job.toJSON = () => {
    const { failedReason, stacktrace, ...rest } = whole();
    const traces = Array.isArray(stacktrace) ? stacktrace.filter(Boolean) : [];
    const stacks = traces.map((stack) => withoutMessage(stack, failedReason ?? ''));
    if (!failedReason) return { ...rest, stacktrace: stacks };
    const name = stacks.at(-1)?.split('\n')[0] ?? 'Error';
    const reason = OWN_WORDS.test(failedReason) ? failedReason : `${name}: the message is in the worker’s log`;
    return { ...rest, failedReason: reason, stacktrace: stacks };
  };
  return job;
};

/** The maximum number of jobs on a page, whatever its address asks for. */
const JOBS_SHOWN = 100;

/**
 * Shows the kind of a failed job's error and the place where it was thrown. Hides the error's message, which could
 * contain a visitor's text or a secret.
 */
class RedactedAdapter extends BullMQAdapter {
  override async getJob(id: string) {
    const job = await super.getJob(id);
    return job && redact(job);
  }

  override async getJobs(...[statuses, start = 0, end]: Parameters<BullMQAdapter['getJobs']>) {
    const last = start + JOBS_SHOWN - 1;
    return (await super.getJobs(statuses, start, Math.min(end ?? last, last))).map(redact);
  }

  override getJobLogs(): Promise<string[]> {
    return Promise.resolve([]);
  }
}

const BOARD_PATH = '/operator/queues';

/**
 * What the board shows instead of a conversation key, which is internal: the first 48 bits of the key. All ids of the
 * conversation and its turns start with these bits.
 */
const idPrefixOf = (key: unknown): string => `${String(key).slice(0, 8)}-${String(key).slice(8, 12)}-…`;

type Page = { displayText: string; href: string };
/** On call says of an id where it is, since when and why, and leads on to the conversation. */
const onCall = (id: unknown): Page => ({
  displayText: 'Find work',
  href: `/operator/on-call?find=${encodeURIComponent(String(id))}`,
});
type Kind<Data> = { show: (data: Partial<Data>) => object; pageOf: (data: Partial<Data>) => Page | undefined };

/**
 * What the board shows of a job, by queue: only ids that can be looked up, and the page of the dashboard for the first
 * of them. An invalid job shows nothing of its data.
 */
const TURNS: Kind<TurnsJob> = {
  show: ({ turns = [] }) => ({ turnIds: turns.map(({ turnId }) => turnId) }),
  pageOf: ({ turns: [first] = [] }) => first && onCall(first.turnId),
};
const DELIVERIES: Kind<WakeUpJob> = {
  show: ({ conversations = [], deliveries = [] }) => ({
    conversationIds: conversations.map(idPrefixOf),
    deliveryIds: deliveries.map(String),
  }),
  pageOf: ({ conversations: [key] = [], deliveries: [delivery] = [] }) => {
    if (key !== undefined) return onCall(idPrefixOf(key));
    return delivery === undefined ? undefined : onCall(delivery);
  },
};
const KNOWLEDGE: Kind<KnowledgeJob> = {
  show: ({ assistantId = '' }) => ({ assistantId }),
  pageOf: ({ assistantId }) => ({
    displayText: 'Knowledge',
    href: `/operator/assistants/${encodeURIComponent(String(assistantId))}/knowledge`,
  }),
};
const SOURCES: Kind<SourceJob> = {
  show: ({ sourceId = '' }) => ({ sourceId }),
  pageOf: ({ sourceId }) => onCall(sourceId),
};

const formatterOf =
  <Data>(show: (data: Data) => object) =>
  (data: unknown): object => {
    try {
      return show(data as Data); // the data may be anything; a mismatch throws and is caught
    } catch {
      return { note: 'not a job of this service' };
    }
  };

/** The data of a job may be anything, and a mismatch throws. */
const pageOfJob = <Data>(pageOf: Kind<Data>['pageOf'], data: unknown): Page => {
  const all = { displayText: 'On call', href: '/operator/on-call' };
  try {
    return pageOf(data as Partial<Data>) ?? all;
  } catch {
    return all;
  }
};

const adaptersOf = <Data>({ queues }: PartitionedQueue<Data>, { show, pageOf }: Kind<Data>): RedactedAdapter[] =>
  queues.map((queue, index) => {
    const prefix = queues.length > 1 ? `${index}:` : '';
    // A retry from the board could answer a turn or send an event twice.
    const adapter = new RedactedAdapter(queue, {
      readOnlyMode: true,
      allowRetries: false,
      prefix,
      externalJobUrl: ({ data }) => pageOfJob(pageOf, data),
    });
    adapter.setFormatter('data', formatterOf(show));
    adapter.setFormatter('returnValue', () => null);
    adapter.setFormatter('progress', () => 0);
    return adapter;
  });

const FONTS = /<link href="https:\/\/fonts\.[^<>]*>/g;
const ASSETS = '/operator/assets';
const OWN_STYLE = `<link href="${ASSETS}/board.css" rel="stylesheet">`;
const FIND_WORK = `<form class="parley-find" role="search" action="/operator/on-call"><input name="find" maxlength="256" aria-label="Find work" placeholder="Find work by an id"></form>`;
const BACK = '<a class="parley-back" href="/operator/">← Dashboard</a>';
const OWN_START = `<script src="${ASSETS}/board.js"></script>${FIND_WORK}${BACK}`;

/**
 * Changes the board's page. Removes the font that the page loads from Google, because no third party may learn who
 * watches the queues. Adds the styles of `board.css`, a search for work, and a link to the dashboard.
 */
const asOurPage = (html: string): string =>
  html
    .replace(FONTS, '')
    .replace('</head>', `${OWN_STYLE}</head>`)
    .replace(/<body[^<>]*>/, (body) => body + OWN_START);

const withOurPage: RequestHandler = (_req, res, next) => {
  const render = res.render.bind(res);
  res.render = (view: string, options?: object) =>
    render(view, options ?? {}, (failure: Error | null, html: string) =>
      failure ? next(failure) : void res.type('html').send(asOurPage(html)),
    );
  next();
};

/**
 * Replaces the board's own error answers by ours (docs/contract.md, Errors), because the board's answers may quote a
 * job or an id.
 */
const withOurErrors =
  (board: RequestHandler): RequestHandler =>
  (req, res, next) => {
    const send = res.send.bind(res);
    const leave = (failure?: unknown): void => {
      res.send = send;
      next(failure);
    };
    res.send = (body) => {
      if (res.statusCode < 400) return send(body);
      leave(res.statusCode < 500 ? notFound() : new Error(`the board answered with ${res.statusCode}`));
      return res;
    };
    return board(req, res, leave);
  };

const POLICY = {
  ...OWN_ORIGIN,
  styleSrc: ["'self'", "'unsafe-inline'"], // the board sets inline styles
  baseUri: ["'self'"],
  formAction: ["'self'"], // the search for work
};

type Dependencies = { queues: Service['queues']; access: OperatorAccess; sessions: RequestHandler[]; tls: boolean };

/** A read-only view of the queues, for owners. */
export const boardRoutes = ({ queues, access, sessions, tls }: Dependencies): Router => {
  const server = new ExpressAdapter();
  server.setBasePath(BOARD_PATH);
  createBullBoard({
    queues: [
      ...adaptersOf(queues.turns, TURNS),
      ...adaptersOf(queues.deliveries, DELIVERIES),
      ...adaptersOf(queues.knowledge, KNOWLEDGE),
      ...adaptersOf(queues.sources, SOURCES),
    ],
    serverAdapter: server,
    options: {
      uiConfig: {
        boardTitle: 'Parley queues',
        hideDocsLink: true,
        pollingInterval: { showSetting: true },
        showMetrics: true, // of the last hour, as the workers record them
      },
    },
  });
  const board = server.getRouter() as {
    (req: Request, res: Response, next: (failure?: unknown) => void): void;
    disable: (name: string) => void;
  }; // it is an Express app
  board.disable('x-powered-by');
  const readOnly: RequestHandler = (req, res, next) =>
    req.method === 'GET' || req.method === 'HEAD' ? next() : methodNotAllowed('GET', 'HEAD')(req, res, next);

  const router = Router({ caseSensitive: true });
  const checks = [access.fromOwnPages, access.signedInFor('owners')];
  router.use(BOARD_PATH, ...sessions, ...checks, readOnly, pageHeaders(tls, POLICY), withOurPage, withOurErrors(board));
  return router;
};
