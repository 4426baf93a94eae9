import { hasAssistant, type Operator } from '../operators/operator.ts';
import type { Erased } from './change-feed.ts';

export type LiveAccess = Pick<Operator, 'operatorId' | 'role' | 'assistantIds'>;

/** A row of the inbox as JSON. */
export type LiveRow = { conversationId: string; assistantId: string; json: string };

/** Where an operator is now, as JSON. It is encoded once for all browsers. */
export type LivePresence = { operatorId: string; assistantId: string; json: string };

/** `position` is null if more rows of the same changes follow. */
type LiveBatch = { rows: LiveRow[]; erased: Erased[]; position: string | null };

/** The part of a response that events are written to. */
export type EventSink = {
  write: (text: string) => unknown;
  destroy: () => unknown;
  end: () => unknown;
  writableLength: number;
  /** Resolves when what was written has been read, or the browser has left. */
  drained: () => Promise<unknown>;
  /** Aborts when the browser has left. */
  left: AbortSignal;
};

/** A browser that leaves more than this unread is disconnected. It resumes at its last position. */
const UNREAD_MAX_BYTES = 8_388_608;

const eventOf = (event: string, json: string): string => `event: ${event}\ndata: ${json}\n`;

/** Writes the events of one browser, and only those that its operator may see. */
export type Subscriber = {
  access: LiveAccess;

  /** Moves the position at which the browser resumes, without an event. */
  moveTo: (position: string) => void;

  cutOff: () => void;
  left: AbortSignal;
  unread: () => number;

  /** Waits until the browser has read what it was sent. Throws when `over` aborts before. */
  drained: (over: AbortSignal) => Promise<void>;

  /**
   * Only the last event of a batch has a position. A browser that got a part of the batch therefore gets the whole
   * batch again.
   */
  send: (batch: LiveBatch) => void;

  /** Writes the states of others in one go. */
  sendPresence: (states: LivePresence[]) => void;

  /** The browser must load everything again. */
  reset: (position: string | null) => void;

  /**
   * A comment that keeps proxies from closing the connection. A browser that has read nothing since the last one is cut
   * off.
   */
  keepAlive: (position: string | null) => void;

  end: () => void;
};

export const createSubscriber = ({ access, sink }: { access: LiveAccess; sink: EventSink }): Subscriber => {
  let ended = false;
  let unreadBefore = false;

  const write = (text: string): void => {
    if (ended || text === '') return;
    sink.write(text);
    if (sink.writableLength > UNREAD_MAX_BYTES) cutOff();
  };
  const cutOff = (): void => {
    ended = true;
    sink.destroy();
  };
  const mayUse = ({ assistantId }: { assistantId: string }): boolean => hasAssistant(access, assistantId);
  const moveTo = (position: string): void => write(`id: ${position}\n\n`);

  return {
    access,
    moveTo,
    cutOff,
    left: sink.left,
    unread: () => (ended ? 0 : sink.writableLength),

    drained: async (over) => {
      const aborted = Promise.withResolvers<never>();
      const abort = (): void => aborted.reject(over.reason);
      over.addEventListener('abort', abort, { once: true });
      if (over.aborted) abort();
      await Promise.race([sink.drained(), aborted.promise]).finally(() => over.removeEventListener('abort', abort));
    },

    send: ({ rows, erased, position }) => {
      const events = [
        ...rows.filter(mayUse).map(({ json }) => eventOf('conversation', json)),
        ...erased.filter(mayUse).map(({ conversationId }) => eventOf('erased', JSON.stringify({ conversationId }))),
      ];
      const last = events.length - 1;
      write(
        events
          .map((event, at) => (at === last && position !== null ? `${event}id: ${position}\n\n` : `${event}\n`))
          .join(''),
      );
    },

    sendPresence: (states) => {
      const ofOthers = states.filter((one) => one.operatorId !== access.operatorId && mayUse(one));
      write(ofOthers.map(({ json }) => `${eventOf('presence', json)}\n`).join(''));
    },

    reset: (position) => write(`${eventOf('reset', '{}')}${position === null ? '' : `id: ${position}\n`}\n`),

    keepAlive: (position) => {
      const unread = sink.writableLength > 0;
      if (unread && unreadBefore) return cutOff();
      unreadBefore = unread;
      write(`: no news\n${position === null ? '' : `id: ${position}\n`}\n`);
    },

    end: () => {
      if (ended) return;
      ended = true;
      sink.end();
    },
  };
};
