import { afterEach, expect, inject, test } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { type Kind, type RealProcess, startRealProcess } from '../support/processes.ts';
import { openRelay, type Relay, through } from '../support/relay.ts';
import { newEnvironment } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const DEADLINE_MS = 12_000;

let relays: Relay[] = [];
let running: RealProcess | undefined;

afterEach(async () => {
  for (const relay of relays) relay.thaw();
  await running?.kill();
  await Promise.all(relays.map((relay) => relay.cut()));
  relays = [];
});

const openRelays = async () => {
  const redis = await openRelay(inject('redisUrl'));
  const mongodb = await openRelay(inject('mongodbUrl'));
  relays = [redis, mongodb];
  const own = newEnvironment();
  const env = {
    ...own,
    REDIS_URL: through(own['REDIS_URL'] ?? '', redis),
    MONGODB_URL: through(own['MONGODB_URL'] ?? '', mongodb),
    SHUTDOWN_DEADLINE_MS: String(DEADLINE_MS),
  };
  return { env, Redis: redis, MongoDB: mongodb };
};

const kinds: Kind[] = ['api', 'reply', 'delivery'];
const ways = (['freeze', 'cut'] as const).flatMap((how) =>
  kinds.flatMap((kind) => (['Redis', 'MongoDB'] as const).map((store) => [kind, store, how] as const)),
);

test.each(ways)('%s, %s unavailable by %s: a stop ends in time with status 0', async (kind, store, how) => {
  const { env, ...stores } = await openRelays();
  running = await startRealProcess(kind, env);

  await stores[store][how]();
  // A 503 from `/readyz` shows that the process has noticed the silent store.
  await eventually(async () => expect((await fetch(`${running?.url}/readyz`)).status).toBe(503));
  const since = performance.now();
  await running.kill('SIGTERM');

  expect([running.child.exitCode, running.describe()]).toEqual([0, expect.anything()]);
  expect(performance.now() - since).toBeLessThan(atPace(DEADLINE_MS));
});
