import { spawnSync } from 'node:child_process';
import { mkdtempSync, copyFileSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { CONFIG_NAMES, readConfig } from '../../src/platform/process/config.ts';
import { environmentOf, ownServices, readCompose } from '../support/compose.ts';

const ROOT = join(import.meta.dirname, '../..');
const example = readFileSync(join(ROOT, '.env.example'), 'utf8');
const KEY = 'a'.repeat(43);

/** Settings that the compose file sets itself, so a `.env` cannot change them. */
const FIXED = ['NODE_ENV', 'HOST', 'MONGODB_URL', 'REDIS_URL', 'TLS_TERMINATED_UPSTREAM', 'SEMANTIC_DIR'];
const FIXED_PORT = {
  api: 'PORT',
  'reply-worker': 'WORKER_HEALTH_PORT',
  'delivery-worker': 'WORKER_HEALTH_PORT',
  'sources-worker': 'WORKER_HEALTH_PORT',
};

/** A `.env` that sets every setting to a distinct value. */
const everything = CONFIG_NAMES.map((name) => `${name}=own-${name}\n`).join('');

describe('docker-compose.yml', () => {
  test.each(Object.entries(FIXED_PORT))('passes every setting of .env to %s, except those it fixes', (name, port) => {
    const service = readCompose({ dotEnv: everything })[name]!;
    const env = environmentOf(service, { dotEnv: everything });

    const own = CONFIG_NAMES.filter((setting) => env[setting] === `own-${setting}`);

    expect(Object.keys(env).sort()).toEqual([...CONFIG_NAMES].sort());
    expect(own.sort()).toEqual(CONFIG_NAMES.filter((setting) => ![...FIXED, port].includes(setting)).sort());
  });

  test('lists every service that is built from this repository', () => {
    const services = ownServices(readCompose({ dotEnv: everything }));

    expect(services.map(([name]) => name)).toEqual(Object.keys(FIXED_PORT));
  });

  test('publishes the API on the PORT of .env, and uses the port of the health check inside', () => {
    const ports = (dotEnv: string) => readCompose({ dotEnv: `ENCRYPTION_KEY=${KEY}\n${dotEnv}` })['api']!.ports;

    expect(ports('PORT=8080\n')).toEqual(['127.0.0.1:8080:3000']);
    expect(ports('PORT=\n')).toEqual(['127.0.0.1:3000:3000']);
    expect(environmentOf(readCompose({ dotEnv: everything })['api']!, { dotEnv: everything })['PORT']).toBe('3000');
  });

  test.each<{ of: string; dotEnv: string | undefined; shell: Record<string, string> }>([
    { of: 'no .env at all, the key from the shell', dotEnv: undefined, shell: { ENCRYPTION_KEY: KEY } },
    { of: 'the documented line alone', dotEnv: `ENCRYPTION_KEY=${KEY}\n`, shell: {} },
    { of: 'a copy of the example and the documented line', dotEnv: `${example}ENCRYPTION_KEY=${KEY}\n`, shell: {} },
  ])('makes a configuration that starts in production from $of', ({ dotEnv, shell }) => {
    for (const [, service] of ownServices(readCompose({ ...(dotEnv && { dotEnv }), shell }))) {
      const config = readConfig(environmentOf(service, dotEnv === undefined ? {} : { dotEnv }));

      expect(config).toMatchObject({ production: true, HOST: '0.0.0.0', LOG_LEVEL: 'info', REPLY_CONCURRENCY: 64 });
      expect(config.MONGODB_URL).toContain('//mongo:');
    }
  });

  test.each([undefined, example])('does not start without a key', (dotEnv) => {
    expect(() => readCompose(dotEnv === undefined ? {} : { dotEnv })).toThrow('ENCRYPTION_KEY: set ENCRYPTION_KEY');
  });

  test('gives a process no rights, and only /tmp to write to', () => {
    for (const [, service] of ownServices(readCompose({ dotEnv: everything }))) {
      expect(service).toMatchObject({
        read_only: true,
        tmpfs: ['/tmp'],
        cap_drop: ['ALL'],
        security_opt: ['no-new-privileges:true'],
      });
    }
  });

  test('gives a process more time to end than its shutdown deadline', () => {
    const { SHUTDOWN_DEADLINE_MS } = readConfig({});

    for (const [, { stop_grace_period: grace }] of ownServices(readCompose({ dotEnv: everything }))) {
      expect(Number(grace?.replace('s', '')) * 1000).toBeGreaterThan(SHUTDOWN_DEADLINE_MS);
    }
  });
});

const hasCompose = spawnSync('docker', ['compose', 'version']).status === 0;

/** If Docker Compose is installed, it must parse the file as the tests above do. No running Docker engine is needed. */
const GIVEN = [everything.replace('own-PORT', '8080'), `${example}ENCRYPTION_KEY=${KEY}\n`, `ENCRYPTION_KEY=${KEY}\n`];
for (const dotEnv of hasCompose ? GIVEN : []) {
  test(`Compose itself reads the same from a .env of ${dotEnv.length} characters`, () => {
    const folder = mkdtempSync(join(tmpdir(), 'parley-compose-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    copyFileSync(join(ROOT, 'docker-compose.yml'), join(folder, 'docker-compose.yml'));
    writeFileSync(join(folder, '.env'), dotEnv);

    const { status, stdout, stderr } = spawnSync('docker', ['compose', 'config', '--format', 'json'], {
      cwd: folder,
      encoding: 'utf8',
      env: Object.fromEntries(Object.entries(process.env).filter(([name]) => !CONFIG_NAMES.includes(name))),
    });

    expect({ status, said: status === 0 ? '' : stderr }).toEqual({ status: 0, said: '' });
    const read = JSON.parse(stdout) as {
      services: Record<string, { environment: Record<string, string>; healthcheck: { test: string[] } }>;
    };
    for (const [name, service] of ownServices(readCompose({ dotEnv }))) {
      expect(read.services[name]).toMatchObject({
        environment: environmentOf(service, { dotEnv }),
        command: service.command,
        healthcheck: { test: service.healthcheck.test },
      });
    }
  });
}
