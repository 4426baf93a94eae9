import { inject, onTestFinished } from 'vitest';
import { type Config, readConfig } from '../../src/platform/config.ts';
import { createLifecycle, type Lifecycle } from '../../src/platform/lifecycle.ts';
import { createLogger, type Logger } from '../../src/platform/logger.ts';
import { openRelay, type RelayOptions } from './relay.ts';
import type { Stack } from './stack.ts';

/** What a worker of a stack is opened with, so that all it says to MongoDB goes through a relay; closed with its test. */
export const openRelayed = async (
  stack: Stack,
  options: RelayOptions,
): Promise<{ config: Config; logger: Logger; lifecycle: Lifecycle }> => {
  const { hostname, port } = new URL(inject('mongodbUrl'));
  const relay = await openRelay({ host: hostname, port: Number(port) }, options);
  const relayed = new URL(stack.env['MONGODB_URL'] ?? '');
  relayed.host = `127.0.0.1:${relay.port}`;
  relayed.search = '?directConnection=true';
  const logger = createLogger({ name: 'test', level: 'silent' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
  onTestFinished(async () => {
    await lifecycle.close();
    await relay.cut();
  });
  return { config: readConfig({ ...stack.env, MONGODB_URL: relayed.href }), logger, lifecycle };
};
