import { inject, onTestFinished } from 'vitest';
import { type Config, readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle, type Lifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger, type Logger } from '../../src/platform/process/logger.ts';
import type { Timing } from '../../src/platform/process/time-limits.ts';
import { openRelay, type Relay, type RelayOptions, through } from '../kit/relay.ts';
import type { Stack } from './stack.ts';

/** Options for a process whose connections to MongoDB go through a relay. Closed after its test. */
export const openRelayed = async (
  stack: Stack,
  options?: RelayOptions,
  timing?: Partial<Timing>,
): Promise<{ config: Config; logger: Logger; lifecycle: Lifecycle; relay: Relay }> => {
  const relay = await openRelay(inject('mongodbUrl'), options);
  const logger = createLogger({ name: 'test', level: 'silent' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 5_000 });
  onTestFinished(async () => {
    await lifecycle.close();
    await relay.cut();
  });
  const config = readConfig({ ...stack.env, MONGODB_URL: through(stack.env['MONGODB_URL'] ?? '', relay) }, timing);
  return { config, logger, lifecycle, relay };
};
