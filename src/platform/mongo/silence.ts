import mongoose, { type Connection } from 'mongoose';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { unavailable } from '../process/errors.ts';
import { failureBeforeWriting } from './failures.ts';

const CHECK_EVERY_MS = 250;
const PING_EVERY_MS = 1_000;
/**
 * How long the server has to answer a ping. This time and the check interval are short enough that a waiting caller
 * learns of the silence within a second.
 */
const ANSWER_WITHIN_MS = 500;

type Waiter = { since: number; notify: () => void };

type Server = {
  ping: () => Promise<unknown>;
  /**
   * Calls `notify` whenever any operation has ended. A busy server may answer other operations while the ping waits.
   */
  onAnswer: (notify: () => void) => void;
};

/**
 * Distinguishes a silent MongoDB, which accepts data and never answers, from a slow one. When a caller has waited for a
 * while, the server is pinged. If neither the ping nor any other operation is answered, the server is silent. All
 * waiting callers are then notified, and new callers are refused immediately until the server answers. The driver's own
 * limits end its operations later.
 */
export type MongoWatch = {
  /** Calls `notify` once MongoDB is silent. The returned function removes this callback. */
  onSilent: (notify: () => void) => () => void;

  /**
   * Wraps work before the first write of a request: an unavailable or silent MongoDB becomes 503 (docs/contract.md,
   * Errors).
   */
  orUnavailable: <Value>(work: Promise<Value>) => Promise<Value>;

  close: () => void;
};

export const watchMongo = ({ ping, onAnswer }: Server): MongoWatch => {
  const waiting = new Set<Waiter>();
  let timer: NodeJS.Timeout | undefined;
  let [silent, closed] = [false, false];
  let lastAnswerAt = Number.NEGATIVE_INFINITY;
  onAnswer(() => {
    lastAnswerAt = performance.now();
  });
  let answeredAt = Number.NEGATIVE_INFINITY;

  /**
   * True if the server answers in time. If this process was paused, the answers that arrived during the pause are read
   * before the ping counts as late.
   */
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

  /**
   * True if a ping is due: when a caller has waited for the check interval, and at longer intervals for callers who
   * wait long, such as polls.
   */
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

    orUnavailable: <Value>(work: Promise<Value>): Promise<Value> => {
      // `Promise.race` is not used, because it makes more promises and this code runs several times per turn.
      const { promise, resolve, reject } = Promise.withResolvers<Value>();
      const end = onSilent(() => reject(unavailable()));
      work.finally(end).then(resolve, (cause: unknown) => reject(failureBeforeWriting(cause)));
      return promise;
    },

    close: () => {
      closed = true;
      clearTimeout(timer);
    },
  };
};

export type OrUnavailable = MongoWatch['orUnavailable'];

// What is used here of the driver's connection is not part of its public interface. Checked with mongodb 7.8.0.
type DriverConnection = {
  socket: { destroyed: boolean };
  onError: (error: Error) => void;
  writeCommand: (...args: unknown[]) => Promise<void>;
};
type Driver = { topology?: { s: { servers: Map<string, { pool: { connections: Iterable<DriverConnection> } }> } } };

const mended = new WeakSet<object>();

/**
 * Makes a command fail if the server has just ended its connection. Without this, the driver waits forever: a
 * write to an ended socket asks it to wait until the socket has drained, and that never happens. The caller would get
 * no response, a batcher would lose one of its two places, and the pool would lose a connection.
 *
 * Call this when at least one command was answered, because the pool then has a connection.
 */
export const failOnEndedConnections = (connection: Connection): void => {
  const { topology } = connection.getClient() as unknown as Driver;
  const [open] = [...(topology?.s.servers.values() ?? [])].flatMap(({ pool }) => [...pool.connections]);
  if (!open) throw new Error('the MongoDB driver has no open connection');
  const prototype = Object.getPrototypeOf(open) as DriverConnection;
  if (mended.has(prototype)) return;
  mended.add(prototype);
  const { writeCommand } = prototype;
  prototype.writeCommand = function (this: DriverConnection, ...args) {
    if (!this.socket.destroyed) return writeCommand.apply(this, args);
    const error = new mongoose.mongo.MongoNetworkError('the server has ended the connection');
    this.onError(error);
    return Promise.reject(error);
  };
};
