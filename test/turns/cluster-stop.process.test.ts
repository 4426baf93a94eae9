import { afterAll, beforeAll, expect, test } from 'vitest';
import { type RedisCluster, startRedisCluster } from '../../scripts/services.ts';
import { eventually } from '../support/eventually.ts';
import { type Kind, type RealProcess, startRealProcess } from '../kit/processes.ts';
import { sized } from '../support/size.ts';
import { newEnvironment } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const STOPPED_WITHIN_MS = 10_000;
const STOPPED_DURING = sized<Kind[]>({ everyday: ['reply'], long: ['api', 'reply', 'delivery'] });
const STOPPED_AFTERWARDS: Kind[] = ['delivery'];

let cluster: RedisCluster;
const running: RealProcess[] = [];
beforeAll(async () => {
  cluster = await startRedisCluster();
});
afterAll(async () => {
  await Promise.all(running.map((one) => one.kill()));
  await cluster?.dispose();
});

const expectStop = async (one: RealProcess): Promise<void> => {
  const since = performance.now();
  await one.kill('SIGTERM');
  expect([one.child.exitCode, one.describe()]).toEqual([0, expect.anything()]);
  expect(performance.now() - since).toBeLessThan(atPace(STOPPED_WITHIN_MS));
};

test('processes stop in time with status 0 when a master of a cluster is away, and when its replica took over', async () => {
  const env = { ...newEnvironment(), REDIS_URL: cluster.url, REDIS_PREFIX: 'p', PARTITIONS: '6' };
  await Promise.all(
    [...STOPPED_DURING, ...STOPPED_AFTERWARDS].map(async (kind, nth) => {
      running[nth] = await startRealProcess(kind, env);
    }),
  );
  const master = await cluster.findMaster('{p-0}');

  await master?.kill();
  await Promise.all(running.slice(0, STOPPED_DURING.length).map(expectStop));

  await eventually(async () => expect(await cluster.findMaster('{p-0}')).toBeDefined());
  await Promise.all(running.slice(STOPPED_DURING.length).map(expectStop));
});
