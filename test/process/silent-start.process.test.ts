import { afterAll, expect, inject, test } from 'vitest';
import { type Kind, launch, MAINS } from '../kit/processes.ts';
import { runAdmin } from '../support/admin.ts';
import { failureOfStart } from '../support/failed-start.ts';
import { openRelay, type Relay, through } from '../kit/relay.ts';
import { sized } from '../support/size.ts';
import { newEnvironment } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

/** A process waits ten seconds for its stores. The remaining time allows for a busy machine. */
const STARTED_OR_NOT_WITHIN_MS = 40_000;
const TOLD_WITHIN_MS = 15_000;

const relays: Relay[] = [];
afterAll(async () => {
  await Promise.all(relays.map((relay) => relay.cut()));
});

const withSilent = async (store: 'Redis' | 'MongoDB'): Promise<Record<string, string>> => {
  const name = store === 'Redis' ? 'REDIS_URL' : 'MONGODB_URL';
  const env = newEnvironment();
  const relay = await openRelay(inject(store === 'Redis' ? 'redisUrl' : 'mongodbUrl'));
  relay.freeze();
  relays.push(relay);
  return { ...env, [name]: through(env[name] ?? '', relay) };
};

const kinds: Kind[] = ['api', 'reply', 'delivery'];
const starts = sized({
  // All kinds open their stores in the same way, and wait ten seconds for them.
  everyday: [],
  long: kinds.flatMap((kind) => (['Redis', 'MongoDB'] as const).map((store) => [kind, store] as const)),
});

test.concurrent.each(['Redis', 'MongoDB'] as const)('a start with a silent %s ends and says so', async (store) => {
  const printed = await failureOfStart(await withSilent(store));

  expect(printed).toContain(store === 'Redis' ? 'Redis did not answer' : 'Mongo');
});

test.concurrent.each(starts)('%s does not start with a silent %s: it logs this and ends', async (kind, store) => {
  const env = await withSilent(store);
  const since = performance.now();

  const { status, stderr } = await launch(process.execPath, [MAINS[kind]], { env: { ...process.env, ...env } }).ended;

  expect(status).toBe(1);
  expect(stderr).toContain(store === 'Redis' ? 'Redis did not answer' : 'Mongo');
  expect(performance.now() - since).toBeLessThan(atPace(STARTED_OR_NOT_WITHIN_MS));
});

test.concurrent.each(['Redis', 'MongoDB'] as const)(
  'the doctor and other commands report a silent %s',
  async (store) => {
    const env = await withSilent(store);

    const local = store === 'MongoDB' ? [['operator', 'create', '--email', 'ada@example.com']] : [];
    for (const command of [['doctor'], ...local]) {
      const { status, stdout, stderr, ms } = await runAdmin(env, command);
      expect(status).toBe(1);
      expect(stdout + stderr).toContain(store);
      expect(ms).toBeLessThan(atPace(TOLD_WITHIN_MS));
    }
  },
);
