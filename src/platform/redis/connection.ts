import type { Redis } from 'ioredis';

// Only this file uses the undocumented `sendCommand`, `stream` and `commandQueue` of ioredis.
// Checked with ioredis 6.0.0.

const CHECK_EVERY_MS = 200;
const PING_EVERY_CHECKS = 5;

type Options = {
  silentAfterMs: () => number;
  /**
   * True to send pings. Needed on a connection without other commands, because silence is noticed only while a command
   * waits.
   */
  pings: boolean;
};

/**
 * Closes a connection whose server accepts commands and never answers. Afterwards, the connection behaves as after any
 * other break: commands fail or wait, according to its role, and it reconnects.
 *
 * Silence is counted in checks instead of milliseconds, so that a process that was paused first reads the data that has
 * arrived. The `socketTimeout` of ioredis would run out before that data is read. The handshake is watched too, so that a
 * connection to a silent server is tried again.
 */
export const watchSilence = (redis: Redis, { silentAfterMs, pings }: Options): void => {
  let [checks, silentChecks, bytesSeen] = [0, 0, -1];

  const check = (): void => {
    const { stream, commandQueue, status } = redis;
    if (pings && status === 'ready' && ++checks % PING_EVERY_CHECKS === 0) redis.ping().catch(() => undefined);
    const bytes = stream?.bytesRead ?? 0;
    const waits = (status === 'ready' || status === 'connect') && commandQueue.length > 0;
    silentChecks = waits && bytes === bytesSeen ? silentChecks + 1 : 0;
    bytesSeen = bytes;
    if (silentChecks * CHECK_EVERY_MS < silentAfterMs()) return;
    silentChecks = 0;
    stream.destroy(new Error(`Redis sent nothing for ${silentAfterMs()} ms`));
  };

  let timer: NodeJS.Timeout | undefined;
  redis.on('connecting', () => {
    timer ??= setInterval(check, CHECK_EVERY_MS).unref();
  });
  redis.on('end', () => {
    clearInterval(timer);
    timer = undefined;
  });
};

/**
 * Sends the commands of one tick in one write. ioredis' auto-pipelining does the same, but copies
 * every script of the connection, which costs more than the commands.
 */
export const corkWrites = (redis: Redis): void => {
  const send = redis.sendCommand.bind(redis);
  let corked = false;
  redis.sendCommand = (command, stream) => {
    if (!corked && redis.status === 'ready') {
      const own = redis.stream;
      corked = true;
      own.cork();
      setImmediate(() => {
        corked = false;
        own.uncork();
      });
    }
    return send(command, stream);
  };
};

const SUBSCRIBED_AGAIN_MS = 1_000;

/**
 * Repeats a subscription that Redis refuses, and reports the refusal. After a reconnect, ioredis subscribes once. If
 * Redis refuses this, for example because the user's rights have changed, the error would end the process.
 */
export const keepSubscribed = (redis: Redis): void => {
  const send = redis.sendCommand.bind(redis);
  /** Subscriptions that are repeated soon. Several callers may make the same one, so each is kept once. */
  const refused = new Set<string>();
  redis.sendCommand = (command, stream) => {
    const sent = send(command, stream) as Promise<unknown>;
    if (command.name !== 'subscribe') return sent;
    const channels = command.args.map(String);
    const name = channels.join(' ');
    const again = (): void => {
      refused.delete(name);
      if (redis.status !== 'end') redis.subscribe(...channels).catch(() => undefined);
    };
    sent.catch((cause: unknown) => {
      if (redis.status === 'end' || refused.has(name)) return;
      refused.add(name);
      redis.emit('error', cause);
      setTimeout(again, SUBSCRIBED_AGAIN_MS).unref();
    });
    return sent;
  };
};
