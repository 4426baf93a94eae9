import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { createReader } from '../../src/platform/mongo/mongo.ts';
import { watchLoop } from '../support/loop.ts';
import { atPace } from '../support/pace.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0, replyWorkers: 0 });

test('other work runs while documents of 15 MB that are read together are decoded', async () => {
  type Row = { _id: string; turns: { id: string; nth: number }[] };
  const rows = stack.service.mongo.db?.collection<Row>('rows');
  if (!rows) throw new Error('not connected');
  const ids = Array.from({ length: 60 }, () => randomUUID());
  for (const _id of ids) {
    await rows.insertOne({ _id, turns: Array.from({ length: 3_000 }, (_, nth) => ({ id: randomUUID(), nth })) });
  }
  const read = createReader<Row>(rows, {});
  const readAll = () => Promise.all(ids.map((id) => read(id)));
  await readAll();

  const stop = watchLoop();
  const found = await readAll();
  const { ms, name } = stop();

  expect(found.map((row) => row?.turns.length)).toEqual(ids.map(() => 3_000));
  // In one step it took 85 ms.
  expect(ms, name).toBeLessThan(atPace(50));
});
