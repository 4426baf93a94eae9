import { expect, inject, test } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { type Kind, startRealProcess } from '../kit/processes.ts';
import { openRelay, through } from '../kit/relay.ts';
import { sized } from '../support/size.ts';
import { newEnvironment } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const DEADLINE_MS = 12_000;

const openRelays = async () => {
  const redis = await openRelay(inject('redisUrl'));
  const mongodb = await openRelay(inject('mongodbUrl'));
  const close = async (): Promise<void> => {
    for (const relay of [redis, mongodb]) relay.thaw();
    await Promise.all([redis.cut(), mongodb.cut()]);
  };
  const own = newEnvironment();
  const env = {
    ...own,
    REDIS_URL: through(own['REDIS_URL'] ?? '', redis),
    MONGODB_URL: through(own['MONGODB_URL'] ?? '', mongodb),
    SHUTDOWN_DEADLINE_MS: String(DEADLINE_MS),
  };
  return { env, close, stores: { Redis: redis, MongoDB: mongodb } };
};

const kinds: Kind[] = ['api', 'reply', 'delivery', 'all'];
const ways = (['freeze', 'cut'] as const).flatMap((how) =>
  kinds.flatMap((kind) => (['Redis', 'MongoDB'] as const).map((store) => [kind, store, how] as const)),
);

/** Every day each store and each way once. A reply worker stops as a delivery worker does. */
const tried = sized({
  everyday: ways.filter(([kind, store, how]) =>
    ['api MongoDB freeze', 'delivery Redis cut'].includes(`${kind} ${store} ${how}`),
  ),
  long: ways,
});

test.concurrent.each(tried)('%s, %s unavailable by %s: a stop ends in time with status 0', async (kind, store, how) => {
  const { env, close, stores } = await openRelays();
  const running = await startRealProcess(kind, env);
  try {
    await stores[store][how]();
    // A 503 from `/readyz` shows that the process has noticed the silent store.
    await eventually(async () => expect((await fetch(`${running.url}/readyz`)).status).toBe(503));
    const since = performance.now();
    await running.kill('SIGTERM');

    expect([running.child.exitCode, running.describe()]).toEqual([0, expect.anything()]);
    expect(performance.now() - since).toBeLessThan(atPace(DEADLINE_MS));
  } finally {
    await running.kill();
    await close();
  }
});
