import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { unavailable } from './errors.ts';
import { beforeWriting } from './mongo.ts';

const CHECK_EVERY_MS = 250;
const PING_EVERY_MS = 1_000;
/** With the look before it: who waits hears within a second. */
const ANSWER_WITHIN_MS = 500;

type Waiter = { since: number; notify: () => void };

type Server = {
  ping: () => Promise<unknown>;
  /** Calls `heard` whenever an operation has ended: one that is busy answers others while the ping stands in line. */
  onAnswer: (notify: () => void) => void;
};

/**
 * Tells a MongoDB that takes what it is sent and says nothing from one that is slow: where somebody has waited for a
 * while it is pinged, and only where neither that nor anything else is answered is it silent. Then those who wait are
 * told, and those who come are refused at once until it answers again. What the driver has under way ends by its own
 * limits, later.
 */
export const watchMongo = ({ ping, onAnswer }: Server) => {
  const waiting = new Set<Waiter>();
  let timer: NodeJS.Timeout | undefined;
  let [silent, closed] = [false, false];
  let lastAnswerAt = Number.NEGATIVE_INFINITY;
  onAnswer(() => {
    lastAnswerAt = performance.now();
  });
  let answeredAt = Number.NEGATIVE_INFINITY;

  /** Also where this very process was stopped meanwhile: what has come is read before it is called late. */
  const answersInTime = (answer: Promise<boolean>): Promise<boolean> => {
    const askedAt = performance.now();
    const late = sleep(ANSWER_WITHIN_MS, undefined, { ref: false })
      .then(() => nextTurn())
      .then(() => lastAnswerAt > askedAt);
    return Promise.race([answer, late]);
  };
  const pingAnswers = (): Promise<boolean> =>
    ping().then(
      () => true,
      () => false,
    );

  /** Somebody has waited for a while, and no answer came meanwhile; of those who wait for long, as polls do, now and then. */
  const isDue = (now: number): boolean => {
    const sinceAnswer = now - answeredAt;
    return [...waiting].some(({ since }) =>
      since > answeredAt ? now - since >= CHECK_EVERY_MS : sinceAnswer >= PING_EVERY_MS,
    );
  };

  const check = async (): Promise<void> => {
    if (isDue(performance.now())) {
      let answer = pingAnswers();
      if (!(await answersInTime(answer))) {
        silent = true;
        for (const { notify } of waiting) notify();
        waiting.clear();
        while (!(await answer) && !closed) {
          await sleep(CHECK_EVERY_MS, undefined, { ref: false });
          answer = pingAnswers();
        }
        silent = false;
      }
      answeredAt = performance.now();
    }
    timer = undefined;
    if (waiting.size > 0) schedule();
  };
  const schedule = (): void => {
    timer ??= setTimeout(() => void check(), CHECK_EVERY_MS).unref();
  };

  /** Calls `tell` once it is silent, until what this gives is called. */
  const onSilent = (notify: () => void): (() => void) => {
    if (silent) {
      notify();
      return () => undefined;
    }
    const one = { since: performance.now(), notify };
    waiting.add(one);
    schedule();
    return () => void waiting.delete(one);
  };

  return {
    onSilent,

    /**
     * For what runs before anything a caller asked for is written: where MongoDB is away or silent, 503
     * (docs/contract.md, Errors).
     */
    beforeWriting: async <Value>(work: Promise<Value>): Promise<Value> => {
      const { promise, reject } = Promise.withResolvers<never>();
      promise.catch(() => undefined);
      const end = onSilent(() => reject(unavailable()));
      return Promise.race([beforeWriting(work), promise]).finally(end);
    },

    close: (): void => {
      closed = true;
      clearTimeout(timer);
    },
  };
};

export type MongoWatch = ReturnType<typeof watchMongo>;
export type BeforeWriting = MongoWatch['beforeWriting'];
