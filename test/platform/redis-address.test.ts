import { expect, test } from 'vitest';
import { sentinelOptionsOf } from '../../src/platform/redis-address.ts';
import { withoutCredentials } from '../../src/platform/credentials.ts';

test('an address with sentinels names the master, the sentinels and the passwords', () => {
  const address = 'redis+sentinel://user:p%40ss@one:26380,two,[::1]:26381/orders?sentinelPassword=other';
  expect(sentinelOptionsOf(address)).toMatchObject({
    name: 'orders',
    sentinels: [
      { host: 'one', port: 26_380 },
      { host: 'two', port: 26_379 },
      { host: '::1', port: 26_381 },
    ],
    username: 'user',
    password: 'p@ss',
    sentinelPassword: 'other',
  });
  expect(sentinelOptionsOf(address)?.tls).toBeUndefined();
  expect(withoutCredentials(address)).toBe('redis+sentinel://one:26380,two,[::1]:26381/orders');
});

test('with rediss, the sentinels and the master use TLS', () => {
  expect(sentinelOptionsOf('rediss+sentinel://one/orders')).toMatchObject({ tls: {}, enableTLSForSentinelMode: true });
});

test('other addresses have no sentinels, and an address without a master is an error', () => {
  expect(sentinelOptionsOf('redis://127.0.0.1:6379')).toBeNull();
  expect(sentinelOptionsOf('/var/run/redis.sock')).toBeNull();
  expect(() => sentinelOptionsOf('redis+sentinel://one:26379')).toThrow('the name of the master is missing');
  expect(() => sentinelOptionsOf('redis+sentinel:///orders')).toThrow('a host is missing');
});
