import mongoose from 'mongoose';
import { expect, inject, onTestFinished, test } from 'vitest';
import { followServerClock, serverNow } from '../../src/platform/process/clock.ts';
import { openRelay, through } from '../kit/relay.ts';

const HELD_MS = 2_000;

test('a first answer that comes late never puts the clock ahead of the server', async () => {
  const relay = await openRelay(inject('mongodbUrl'));
  const connection = mongoose.createConnection(through(inject('mongodbUrl'), relay));
  onTestFinished(async () => {
    await connection.destroy();
    await relay.cut();
  });
  await connection.asPromise();

  // The request leaves late, so the server's time is that of the end of this time, not of its middle.
  relay.freeze();
  setTimeout(relay.thaw, HELD_MS);
  await followServerClock(connection);

  // MongoDB runs on this machine, so both clocks are the same.
  expect(serverNow() - Date.now()).toBeLessThan(HELD_MS / 4);
  expect(serverNow() - Date.now()).toBeGreaterThan(-HELD_MS / 4);
});
