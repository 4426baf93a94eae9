import type { Transporter } from 'nodemailer';
import { type Dispatcher, request } from 'undici';
import { serverNow } from '../platform/process/clock.ts';
import type { Config } from '../platform/process/config.ts';
import { newId } from '../platform/process/ids.ts';
import type { Logger } from '../platform/process/logger.ts';
import { signEvent } from '../events/signature.ts';
import type { AlertChannel, AlertKind, AlertStore, StoredAlert } from './alert.ts';

/** The maximum number of alerts in one message. If it is refused, the next one has half as many, and follows at once. */
const ALERTS_AT_ONCE = 100;
const SEND_MS = 10_000;
/** The longest pause of a channel that fails. */
const WAIT_MAX_MS = 600_000;

/** What each alert says, and what to do about it. In ASCII, so that a mail stays readable as it is sent. */
export const WORDS: Record<AlertKind, { title: string; remedy: string }> = {
  endpoint_failing: {
    title: 'An endpoint fails',
    remedy: 'Look at its last deliveries, and tell the owner of the receiver.',
  },
  endpoint_paused: {
    title: 'An endpoint is paused',
    remedy: 'If the pause has no end, resume it when the receiver is back; else it ends by itself.',
  },
  certificate_expires: {
    title: 'The certificate of an endpoint ends soon',
    remedy: 'Tell the owner of the receiver to renew it.',
  },
  events_late: {
    title: 'Events wait for longer than a minute',
    remedy: 'If the receiver is fast, add delivery workers or raise ENDPOINT_CONCURRENCY; if not, tell its owner.',
  },
  person_waits: {
    title: 'A visitor waits for a person past the time',
    remedy: 'Take the conversation in the inbox, or assign it.',
  },
  provider_failing: {
    title: 'A provider fails',
    remedy: 'Check the settings of the engine, and the provider; the reasons of such a reply have its error.',
  },
  quota_near: {
    title: 'A quota of turns is used by 80 %',
    remedy: 'Raise the quota, or tell whoever sends the turns.',
  },
  quota_reached: { title: 'A quota of turns is used up', remedy: 'Raise the quota, or tell whoever sends the turns.' },
  budget_near: {
    title: 'A budget of tokens is used by 80 %',
    remedy: 'Raise the budget, or lower the bounds of answer and history.',
  },
  budget_reached: {
    title: 'A budget of tokens is used up',
    remedy: 'Raise the budget, or lower the bounds of answer and history.',
  },
  queue_stuck: {
    title: 'A queue does not move',
    remedy: 'Look at the logs and the CPU of its workers: restart one that hangs, add one if all are busy.',
  },
  worker_silent: {
    title: 'A worker is silent',
    remedy:
      'Restart it if it hangs, start another if none is left. One that is gone, and was not replaced at its host, ends this in 15 minutes.',
  },
  sweeps_stopped: { title: 'No worker runs', remedy: 'Start the workers.' },
  redis_unavailable: { title: 'Redis does not answer', remedy: 'Look at Redis, and at the network to it.' },
  redis_full: {
    title: 'Redis is almost full',
    remedy: 'Find what is large with redis-cli --bigkeys; raise maxmemory.',
  },
  disk_full: {
    title: 'The disk of MongoDB is almost full',
    remedy: 'Add room, or shorten DELIVERY_RETENTION_DAYS.',
  },
};

/** The alert without any text from outside, which a filter may refuse: our own words, ids and times. */
const bareOf = (alert: StoredAlert): StoredAlert => ({
  ...alert,
  details: {},
  acknowledged: alert.acknowledged && { ...alert.acknowledged, by: '' },
});

/** An alert as people and programs read it. */
export const toAlertView = ({
  _id,
  kind,
  target,
  assistantId,
  details,
  beganAt,
  endedAt,
  acknowledged,
}: StoredAlert) => ({
  alertId: _id,
  kind,
  title: WORDS[kind].title,
  remedy: WORDS[kind].remedy,
  state: endedAt === null ? ('open' as const) : ('ended' as const),
  target,
  assistantId,
  details,
  beganAt,
  endedAt,
  acknowledged,
});

const shown = (value: unknown): string => (value instanceof Date ? value.toISOString() : String(value));

const linesOf = (alert: StoredAlert): string =>
  [
    `${alert.endedAt ? 'Ended' : alert.returnedAt ? 'Began again' : 'Began'}: ${WORDS[alert.kind].title} (${alert.kind}, ${alert.target})`,
    `  ${alert.endedAt ? `from ${shown(alert.beganAt)} to ${shown(alert.endedAt)}` : `since ${shown(alert.beganAt)}`}`,
    ...(alert.assistantId === null ? [] : [`  assistant ${alert.assistantId}`]),
    ...Object.entries(alert.details).map(([name, value]) => `  ${name}: ${shown(value)}`),
    ...(alert.endedAt ? [] : [`  ${WORDS[alert.kind].remedy}`]),
  ].join('\n');

type Send = (alerts: StoredAlert[]) => Promise<void>;

type Settings = Pick<
  Config,
  'ALERT_WEBHOOK_URL' | 'ALERT_WEBHOOK_SECRET' | 'ALERT_SMTP_URL' | 'ALERT_EMAIL_FROM' | 'ALERT_EMAIL_TO' | 'PUBLIC_URL'
>;

class NotTold extends Error {
  override name = 'NotTold';
  readonly isRefused: boolean;
  constructor(status: number) {
    super(`the alert webhook answered with ${status}`);
    this.isRefused = status >= 400 && status < 500 && status !== 429;
  }
}

/** True if the receiver did not want this message: its size, or a text in it. Another one may pass. */
const isRefused = (cause: unknown): boolean => {
  if (cause instanceof NotTold) return cause.isRefused;
  // nodemailer: the server has refused the contents, and not the sender, the password or a recipient.
  const { code, responseCode = 500 } = cause as { code?: string; responseCode?: number };
  return code === 'EMESSAGE' && responseCode >= 500;
};

const toWebhook =
  (url: string, secret: string, dispatcher: Dispatcher): Send =>
  async (alerts) => {
    const timestamp = Math.floor(serverNow() / 1000);
    const eventId = newId();
    const envelope = { event: 'alerts.changed', event_id: eventId, timestamp, alerts: alerts.map(toAlertView) };
    const body = JSON.stringify(envelope);
    const answer = await request(url, {
      dispatcher,
      method: 'POST',
      body,
      headers: {
        'Content-Type': 'application/json',
        'X-Factory-Event': 'alerts.changed',
        'X-Factory-Event-Id': eventId,
        'X-Factory-Signature': signEvent({ body, secrets: [secret], timestamp }),
      },
      signal: AbortSignal.timeout(SEND_MS),
    });
    await answer.body.dump();
    if (answer.statusCode >= 300) throw new NotTold(answer.statusCode);
  };

type Email = { from: string; to: string; page: string | null; withinMs: number };

const toEmail = (url: string, { from, to, page, withinMs }: Email): Send => {
  const limits = { connectionTimeout: SEND_MS, greetingTimeout: SEND_MS, socketTimeout: SEND_MS };
  // Loaded with the first mail, because most processes send none.
  let transport: Transporter | undefined;
  return async (alerts) => {
    const [first] = alerts;
    const open = alerts.filter(({ endedAt }) => endedAt === null).length;
    const what = first && alerts.length === 1 ? WORDS[first.kind].title : `${alerts.length} alerts, ${open} open`;
    const text = [...alerts.map(linesOf), ...(page === null ? [] : [page])].join('\n\n');
    const signal = AbortSignal.timeout(withinMs);
    transport ??= (await import('nodemailer')).createTransport({ url, ...limits });
    await transport.sendMail({ from, to, subject: `Parley: ${what}`, text, signal });
  };
};

/** The channels that are configured. */
export const channelsOf = ({ ALERT_WEBHOOK_URL, ALERT_SMTP_URL }: Settings): AlertChannel[] => [
  ...(ALERT_WEBHOOK_URL ? (['webhook'] as const) : []),
  ...(ALERT_SMTP_URL ? (['email'] as const) : []),
];

const sendersOf = (settings: Settings, dispatcher: Dispatcher, mailMs: number): Map<AlertChannel, Send> => {
  const { ALERT_WEBHOOK_URL, ALERT_WEBHOOK_SECRET, ALERT_SMTP_URL, ALERT_EMAIL_FROM, ALERT_EMAIL_TO } = settings;
  const found = new Map<AlertChannel, Send>();
  if (ALERT_WEBHOOK_URL && ALERT_WEBHOOK_SECRET)
    found.set('webhook', toWebhook(ALERT_WEBHOOK_URL, ALERT_WEBHOOK_SECRET, dispatcher));
  if (ALERT_SMTP_URL && ALERT_EMAIL_FROM && ALERT_EMAIL_TO) {
    const page = settings.PUBLIC_URL === undefined ? null : new URL('/operator/alerts', settings.PUBLIC_URL).href;
    found.set('email', toEmail(ALERT_SMTP_URL, { from: ALERT_EMAIL_FROM, to: ALERT_EMAIL_TO, page, withinMs: mailMs }));
  }
  return found;
};

/**
 * Tells each channel what began and ended, up to a hundred alerts in one message. A channel that fails is tried again
 * after a growing pause; neither the watch nor the other channel waits for it.
 *
 * An alert that is refused alone is sent bare. If that is refused too, alerts of other kinds are tried, because only the
 * kind can be the reason. If one of them is accepted and the alert is refused once more, it counts as told. So one alert
 * does not silence a channel, and a channel that refuses everything has been told nothing.
 */
export const createNotify = (
  alerts: Pick<AlertStore, 'listUntold' | 'markTold'>,
  {
    settings,
    dispatcher,
    timing: { alertEveryMs: everyMs, alertMailMs },
    logger,
  }: {
    settings: Settings;
    dispatcher: Dispatcher;
    timing: Pick<Config['timing'], 'alertEveryMs' | 'alertMailMs'>;
    logger: Logger;
  },
): { channels: AlertChannel[]; tell: (mayTell: () => boolean) => void; idle: () => Promise<unknown> } => {
  const sends = sendersOf(settings, dispatcher, alertMailMs);
  const running = new Map<AlertChannel, Promise<void>>();
  const failing = new Map<AlertChannel, { waitMs: number; until: number; atOnce: number }>();

  /** Sends the alerts, one alone also bare. Returns why they were refused, or null. */
  const offer = async (send: Send, some: StoredAlert[]): Promise<unknown> => {
    const tries = some.length === 1 ? [some, some.map(bareOf)] : [some];
    let refusal: unknown = null;
    for (const one of tries) {
      try {
        await send(one);
        return null;
      } catch (cause) {
        if (!isRefused(cause)) throw cause;
        refusal = cause;
      }
    }
    return refusal;
  };

  const tellChannel = async (channel: AlertChannel, send: Send, mayTell: () => boolean): Promise<void> => {
    let atOnce = failing.get(channel)?.atOnce ?? ALERTS_AT_ONCE;
    /** Alerts that were refused bare, by kind, since another one was accepted; and the ids of those before that. */
    const refused = new Map<AlertKind, string>();
    const refusedBefore = new Set<string>();
    let refusal: unknown = null;
    try {
      while (mayTell()) {
        const untold = await alerts.listUntold(channel, atOnce, [...refused.keys()]);
        const [first] = untold;
        if (!first) break;
        const cause = await offer(send, untold);
        if (cause === null) {
          await alerts.markTold(channel, untold);
          atOnce = Math.min(ALERTS_AT_ONCE, 2 * atOnce);
          for (const alertId of refused.values()) refusedBefore.add(alertId);
          refused.clear();
        } else if (untold.length > 1) atOnce = untold.length >> 1;
        else if (refusedBefore.has(first._id)) {
          await alerts.markTold(channel, untold);
          logger.warn({ err: cause, channel, alertId: first._id, kind: first.kind }, 'an alert was refused for good');
        } else {
          refused.set(first.kind, first._id);
          refusal = cause;
        }
      }
      if (refused.size > 0) throw refusal;
      failing.delete(channel);
    } catch (cause) {
      const waitMs = Math.min(2 * (failing.get(channel)?.waitMs ?? everyMs / 2), WAIT_MAX_MS);
      failing.set(channel, { waitMs, until: performance.now() + waitMs, atOnce });
      logger.warn({ err: cause, channel, againMs: waitMs }, 'alerts could not be told');
    }
  };

  return {
    channels: channelsOf(settings),

    tell: (mayTell) => {
      for (const [channel, send] of sends) {
        if (running.has(channel) || performance.now() < (failing.get(channel)?.until ?? 0)) continue;
        const told = tellChannel(channel, send, mayTell).finally(() => running.delete(channel));
        running.set(channel, told);
      }
    },

    idle: () => Promise.all(running.values()),
  };
};
