import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import mongoose from 'mongoose';
import { describe, expect, inject, onTestFinished, test } from 'vitest';
import { type Service, startMongod, startRedis } from '../../scripts/services.ts';
import { longTest } from '../support/size.ts';

const DURABLE = { w: 'majority', j: true } as const;

const disposed = (service: Service): Service => {
  onTestFinished(() => service.dispose());
  return service;
};

const redisAt = (url: string): Redis => {
  const redis = new Redis(url);
  onTestFinished(() => redis.disconnect());
  return redis;
};

const databaseAt = async (url: string) => {
  const connection = await mongoose.createConnection(url).asPromise();
  onTestFinished(() => connection.close());
  return connection.collection('things');
};

describe('the services of a test run', () => {
  test('Redis answers and never evicts', async () => {
    const redis = redisAt(inject('redisUrl'));

    expect(await redis.ping()).toBe('PONG');
    expect(await redis.config('GET', 'maxmemory-policy')).toEqual(['maxmemory-policy', 'noeviction']);
  });

  test('MongoDB acknowledges a journalled majority write and a transaction', async () => {
    const url = inject('mongodbUrl').replace('/parley', `/setup-services-${process.pid}`);
    const things = await databaseAt(url);

    await things.insertOne({ kind: 'durable' }, { writeConcern: DURABLE });
    await things.conn.transaction(async (session) => {
      await things.insertOne({ kind: 'in a transaction' }, { session });
    });

    expect(await things.countDocuments()).toBe(2);
    await things.conn.dropDatabase();
  });
});

describe('a separate service for one test', () => {
  test('a killed MongoDB comes back on its port with its data', async () => {
    const mongod = disposed(await startMongod());
    const things = await databaseAt(mongod.url);
    await things.insertOne({ kind: 'kept' }, { writeConcern: DURABLE });
    const first = mongod.pid;

    await mongod.kill();
    expect(mongod.pid).toBeUndefined();
    await mongod.restart();

    expect(mongod.pid).not.toBe(first);
    expect(await things.countDocuments()).toBe(1);
  });

  longTest('a MongoDB on another port finds the kept data', async () => {
    const dataDir = await mkdtemp(join(tmpdir(), 'parley-kept-'));
    onTestFinished(() => rm(dataDir, { recursive: true }));
    const first = disposed(await startMongod({ dataDir }));
    await (await databaseAt(first.url)).insertOne({ kind: 'kept' }, { writeConcern: DURABLE });
    await first.dispose();

    const second = disposed(await startMongod({ dataDir }));

    expect(second.port).not.toBe(first.port);
    expect(await (await databaseAt(second.url)).countDocuments()).toBe(1);
    expect(existsSync(dataDir)).toBe(true);
  });

  test('a persistent Redis keeps its keys over a restart', async () => {
    const service = disposed(await startRedis({ persistent: true }));
    const redis = redisAt(service.url);
    await redis.set('kept', 'yes');

    await service.restart();

    expect(await redisAt(service.url).get('kept')).toBe('yes');
  });
});
