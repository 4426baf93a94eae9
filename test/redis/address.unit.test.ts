import { expect, test } from 'vitest';
import { clusterAddressOf, sentinelOptionsOf } from '../../src/platform/redis/redis.ts';
import { withoutCredentials } from '../../src/platform/process/credentials.ts';

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

test('the address of a cluster names some of its nodes, the user and the password', () => {
  const address = 'redis+cluster://user:p%40ss@one:7000,two,[::1]:7001';
  expect(clusterAddressOf(address)).toEqual({
    nodes: [
      { host: 'one', port: 7000 },
      { host: 'two', port: 6379 },
      { host: '::1', port: 7001 },
    ],
    redisOptions: { username: 'user', password: 'p@ss' },
    clusterOptions: {},
  });
  expect(sentinelOptionsOf(address)).toBeNull();
  expect(clusterAddressOf('redis+sentinel://one/orders')).toBeNull();
  expect(clusterAddressOf('rediss+cluster://one')?.redisOptions).toEqual({ tls: {} });
  expect(() => clusterAddressOf('redis+cluster://one,')).toThrow('a host is missing');
});
