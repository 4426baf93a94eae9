import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { findSettings } from '../../scripts/admin/settings.ts';
import { readConfig } from '../../src/platform/process/config.ts';
import { runAdmin } from '../support/admin.ts';

const root = mkdtempSync(join(tmpdir(), 'parley-settings-'));
const state = { mongodbUrl: 'mongodb://127.0.0.1:1/a', redisUrl: 'redis://127.0.0.1:1', baseUrl: 'http://127.0.0.1:3' };

const aQuickstart = (folder = '.local'): void => {
  mkdirSync(join(root, folder));
  writeFileSync(join(root, folder, 'quickstart.json'), JSON.stringify({ ...state, pids: {} }));
  writeFileSync(join(root, folder, 'env'), 'ENCRYPTION_KEY=its-key\n');
};

beforeEach(() => {
  rmSync(root, { recursive: true });
  mkdirSync(root);
});
afterAll(() => rmSync(root, { recursive: true }));

test('without a quickstart all settings come from the environment', () => {
  expect(findSettings({ PORT: '1', REDIS_URL: '' }, root)).toEqual({
    environment: { PORT: '1' },
    baseUrl: null,
    source: 'the environment',
  });
});

test('the running quickstart is the default, with its encryption key and private addresses', () => {
  aQuickstart();

  expect(findSettings({ LOG_LEVEL: 'warn' }, root)).toEqual({
    environment: {
      ENCRYPTION_KEY: 'its-key',
      WEBHOOK_ALLOW_PRIVATE: 'true',
      MONGODB_URL: state.mongodbUrl,
      REDIS_URL: state.redisUrl,
      LOG_LEVEL: 'warn',
    },
    baseUrl: state.baseUrl,
    source: join(root, '.local/quickstart.json'),
  });
});

test('a quickstart in another folder is found by LOCAL_DIR and recognised by its MongoDB', () => {
  aQuickstart('other');

  const { MONGODB_URL, ENCRYPTION_KEY } = findSettings({ LOCAL_DIR: 'other' }, root).environment;
  const named = findSettings({ LOCAL_DIR: 'other', MONGODB_URL: state.mongodbUrl, REDIS_URL: 'redis://b' }, root);

  expect({ MONGODB_URL, ENCRYPTION_KEY }).toEqual({ MONGODB_URL: state.mongodbUrl, ENCRYPTION_KEY: 'its-key' });
  expect(named.environment).toMatchObject({ ENCRYPTION_KEY: 'its-key', REDIS_URL: 'redis://b' });
});

test('another MongoDB gets neither the quickstart’s key nor its private addresses', () => {
  aQuickstart();
  const given = { MONGODB_URL: 'mongodb://elsewhere/parley', REDIS_URL: 'redis://elsewhere' };

  const { environment, baseUrl } = findSettings(given, root);

  expect(environment).toEqual(given);
  expect(baseUrl).toBeNull();
  expect(readConfig(environment).WEBHOOK_ALLOW_PRIVATE).toBe(false);
});

test('a wrong setting or a damaged state file is reported in one line', async () => {
  mkdirSync(join(root, '.local'));
  writeFileSync(join(root, '.local/quickstart.json'), '{"mongo');

  const bad = await runAdmin({ PARTITIONS: 'some', PORT: '-1' }, ['assistant', 'list', '--json']);

  expect(() => findSettings({}, root)).toThrow(/quickstart\.json is not what a quickstart writes/);
  expect(bad.status).toBe(1);
  expect(JSON.parse(bad.stderr)).toMatchObject({
    error: { code: 'configuration', message: expect.stringMatching(/^PORT: .*; PARTITIONS: /) },
  });
});
