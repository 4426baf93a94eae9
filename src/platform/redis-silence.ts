import type { Redis } from 'ioredis';

const CHECK_EVERY_MS = 200;
const PING_EVERY_CHECKS = 5;

type Options = {
  silentAfterMs: () => number;
  /** Nothing else is ever asked on this connection: only so is a silent one noticed. */
  pings: boolean;
};

/**
 * A server that takes what it is sent and says nothing is as good as away. Such a connection is cut; what follows (fail at
 * once or wait, connect again) is the same as for any that broke. ioredis does not notice by itself.
 *
 * Counted in looks, not by the clock: a process that was itself stopped reads what has come before it judges. The
 * handshake is watched too, so that a server which stays silent is tried again and again.
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
    stream.destroy(new Error(`Redis said nothing for ${silentAfterMs()} ms`));
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
