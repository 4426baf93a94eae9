import { expect, onTestFinished, test, vi } from 'vitest';
import type { Hub } from '../../src/live/hub.ts';
import { createLiveUpdates } from '../../src/live/live.ts';
import type { PresenceBoard } from '../../src/live/presence.ts';
import type { EventSink } from '../../src/live/subscriber.ts';
import type { Operator } from '../../src/operators/operator.ts';
import { createLogger } from '../../src/platform/process/logger.ts';

const operator: Operator = {
  operatorId: 'operator',
  email: 'a@example.com',
  role: 'owner',
  assistantIds: null,
  disabled: false,
  hasPassword: true,
  generation: 1,
  createdAt: new Date(),
  lastSignInAt: null,
};

const aSink = () => {
  const end = vi.fn();
  const nothing = {
    write: () => undefined,
    destroy: () => undefined,
    writableLength: 0,
    drained: async () => undefined,
  };
  return { end, ...nothing, left: new AbortController().signal } satisfies EventSink;
};

test('connections stay again after MongoDB was silent, even if an old one is still closing', async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  let silent = true;
  const live = createLiveUpdates({
    hub: {
      add: async () => () => undefined,
      keepAlive: () => undefined,
      close: async () => undefined,
    } satisfies Hub,
    createPresence: () =>
      ({
        announce: async () => undefined,
        listen: async () => undefined,
        stopListening: async () => undefined,
        list: () => [],
      }) satisfies PresenceBoard,
    findSignedIn: async (refs) => {
      if (silent) throw new Error('MongoDB is silent');
      return refs.map(() => operator);
    },
    draining: new AbortController().signal,
    logger: createLogger({ name: 'test', level: 'silent' }),
  });
  onTestFinished(() => live.close());
  const connect = async () => {
    const sink = aSink();
    await live.connect(sink, { operator, session: { sessionId: 's', operatorId: 'operator' }, from: null });
    return sink;
  };
  const closing = await connect(); // its browser is gone, and nobody has noticed yet
  await vi.advanceTimersByTimeAsync(4_500);
  expect(closing.end).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(1_500);
  expect(closing.end).toHaveBeenCalled();

  silent = false;
  await vi.advanceTimersByTimeAsync(1_100);
  const next = await connect();
  await vi.advanceTimersByTimeAsync(1_400);

  expect(next.end).not.toHaveBeenCalled();
});
