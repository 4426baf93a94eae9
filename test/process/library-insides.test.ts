import { once } from 'node:events';
import { globSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type AddressInfo, connect, createServer } from 'node:net';
import { setImmediate as nextTick } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { expect, inject, onTestFinished, test } from 'vitest';
import { createLogger } from '../../src/platform/process/logger.ts';
import { closeRedis, openRedis } from '../../src/platform/redis/redis.ts';

const logger = createLogger({ name: 'test', level: 'silent' });
const CHECKED = /Checked with ([\w@/-]+) (\d+(?:\.\d+\.\d+)?)/g;
const insides = globSync(['src/**/*.ts', 'workers/**/*.ts']).flatMap((file) =>
  [...readFileSync(file, 'utf8').matchAll(CHECKED)].map(([, library = '', version = '']) => ({
    file,
    library,
    version,
  })),
);

const versionOf = (library: string): string => {
  if (library === 'Node') return process.versions.node.split('.')[0] ?? '';
  return (createRequire(import.meta.url)(`${library}/package.json`) as { version: string }).version;
};

test.each(insides)('$file was checked with the installed $library', ({ library, version }) => {
  // After an upgrade: read the file's list of what it relies on in the library's new source, then change the version.
  expect(versionOf(library)).toBe(version);
});

test('each library has one file that reaches into it', () => {
  expect(insides.map(({ library }) => library).toSorted()).toEqual(['Node', 'ioredis', 'mongodb', 'undici']);
});

// What undici does is held by test/events/send.test.ts and send-hostile.test.ts, and what the driver of MongoDB does
// by mongo-ended-connections.test.ts.

test('ioredis sends each command through `sendCommand`, and counts it in `commandQueue` until it is answered', async () => {
  const redis = (await openRedis({ url: inject('redisUrl'), role: 'api' }, logger)) as Redis;
  onTestFinished(() => closeRedis(redis));
  await redis.ping();

  const answers = Promise.all([redis.ping(), redis.pipeline().ping().ping().exec()]);
  const during = [redis.stream.writableCorked, redis.commandQueue.length];
  await nextTick();
  const afterwards = redis.stream.writableCorked;
  await answers;

  expect({ during, afterwards }).toEqual({ during: [1, 3], afterwards: 0 });
  expect(redis.commandQueue.length).toBe(0);
});

test('Node tells what the operating system has not taken yet of a write', async () => {
  const server = createServer((peer) => peer.pause()).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  await once(socket, 'connect');

  socket.write(Buffer.alloc(32 * 1024 * 1024));

  const { _handle: handle } = socket as unknown as { _handle: { writeQueueSize: number } };
  expect(handle.writeQueueSize).toBeGreaterThan(0);
  expect(handle.writeQueueSize).toBeLessThan(32 * 1024 * 1024);
});
