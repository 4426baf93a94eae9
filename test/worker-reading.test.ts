import { randomUUID } from 'node:crypto';
import { expect, inject, onTestFinished, test } from 'vitest';
import { readConfig } from '../src/platform/config.ts';
import { createLifecycle } from '../src/platform/lifecycle.ts';
import { createLogger } from '../src/platform/logger.ts';
import { openReplyWorker } from '../workers/reply/worker.ts';
import { anAssistant } from './support/builders.ts';
import { eventually } from './support/eventually.ts';
import { type Command, openRelay } from './support/relay.ts';
import { useStack } from './support/stack.ts';

/** A sweep may come between and lose some of its own. */
const LOST = 4;

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

test('a line goes on where its next turn was taken, and reading it failed', async () => {
  const { hostname, port } = new URL(inject('mongodbUrl'));
  const seen = { committed: false, lost: 0 };
  /** Readings that come after the first commit: of the turn that follows in the same line, and the driver's second try. */
  const loses = ({ name, collection }: Command): (() => void) | null => {
    if (collection !== 'conversations') return null;
    if (name === 'update') seen.committed = true;
    if (name !== 'find' || !seen.committed || seen.lost === LOST) return null;
    seen.lost += 1;
    return () => undefined;
  };
  const relay = await openRelay({ host: hostname, port: Number(port) }, { loses });
  const relayed = new URL(stack.env['MONGODB_URL'] ?? '');
  relayed.host = `127.0.0.1:${relay.port}`;
  relayed.search = '?directConnection=true';
  const logger = createLogger({ name: 'test', level: 'silent' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
  onTestFinished(async () => {
    await lifecycle.close();
    await relay.cut();
  });
  const { chat } = await anAssistant(stack);
  const session_id = randomUUID();
  const answers = ['one', 'two', 'three'].map((message) => chat({ session_id, message }));
  await eventually(async () => {
    const [row] = await stack.service.mongo.collection('conversations').find({ sessionId: session_id }).toArray();
    expect(row?.waiting).toHaveLength(3);
  });

  await openReplyWorker({ config: readConfig({ ...stack.env, MONGODB_URL: relayed.href }), logger, lifecycle });
  const statuses = (await Promise.all(answers)).map(({ status }) => status);

  expect(seen.lost).toBe(LOST);
  expect(statuses).toEqual([200, 200, 200]);
});
