import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readCompose } from '../support/compose.ts';
import { type Container, startContainers } from '../support/containers.ts';
import { eventually } from '../support/eventually.ts';
import type { Image } from '../support/image.ts';
import { freePort } from '../../scripts/services.ts';

const ROOT = join(import.meta.dirname, '../..');
const BUILD_MS = 600_000;
const STARTED_MS = 180_000;
const PAGES = ['README.md', 'docs/operating.md', 'docs/admin.md'];
const documented = PAGES.flatMap((page) => {
  const lines = readFileSync(join(ROOT, page), 'utf8').matchAll(/^docker compose (?:run|exec) .*$/gm);
  return [...lines].map(([line]) => ({ page, line }));
});

/** Example settings of a `.env`. */
const CHOSEN = {
  PUBLIC_URL: 'https://chat.example.com',
  REPLY_CONCURRENCY: '7',
  EVENT_MAX_AGE_S: '601',
  TRUST_PROXY: '1',
};

let started: Awaited<ReturnType<typeof startContainers>>;
let image: Image;
let containers: Record<string, Container> = {};
let admin: Record<string, string> = {};

const configOf = ({ output }: Container): Record<string, unknown> => {
  const line = output.said.split('\n').find((one) => one.includes('"msg":"starting"'));
  return (JSON.parse(line ?? '{}') as { config?: Record<string, unknown> }).config ?? {};
};

beforeAll(async () => {
  started = await startContainers(CHOSEN);
  ({ image, containers } = started);
  admin = containers['api']!.env;
}, BUILD_MS);

afterAll(() => started.close());

describe('the image', () => {
  test('has the Node version that the launcher needs, and starts the API by default', () => {
    expect(image.stage.base).toBe('gcr.io/distroless/nodejs24-debian12');
    expect(image.stage.cmd).toEqual(readCompose({ shell: { ENCRYPTION_KEY: 'k' } })['api']!.command);
  });

  test('has everything that runs, and neither the tests nor their dependencies', () => {
    const has = (path: string) => existsSync(join(image.stage.workdir, path));

    expect(
      [
        'src/main.ts',
        'src/api/reference.js',
        'scripts/admin.ts',
        'dashboard/dist/index.html',
        'node_modules/express',
        'node_modules/swagger-ui-dist/swagger-ui-bundle.js',
        'node_modules/@parley/reading/package.json',
        'node_modules/@parley/understanding/package.json',
        `node_modules/onnxruntime-node/bin/napi-v6/linux/${process.arch}/onnxruntime_binding.node`,
      ].filter(has),
    ).toHaveLength(9);
    expect(
      [
        'test',
        'docs',
        '.git',
        '.local',
        '.env',
        'node_modules/vitest',
        'node_modules/react',
        'node_modules/@parley/dashboard',
        'node_modules/onnxruntime-node/bin/napi-v6/darwin',
        'node_modules/onnxruntime-node/bin/napi-v6/win32',
        'packages/reading/test',
        'packages/understanding/test',
        'packages/understanding/eval',
      ].filter(has),
    ).toEqual([]);
  });

  test('is readable but not writable for the user that runs in it', async () => {
    const written = await image.run(['node', '-e', `fs.writeFileSync('new', '')`]);
    const changed = await image.run(['node', '-e', `fs.mkdirSync('node_modules/new')`]);
    const read = await image.run(['node', '-e', `fs.readFileSync('src/main.ts')`]);

    expect(written.stderr).toContain('EACCES');
    expect(changed.stderr).toContain('EACCES');
    expect(read).toEqual({ status: 0, stdout: '', stderr: '' });
  });
});

describe('its processes, started as the compose file says', () => {
  test(
    'become healthy by the compose file’s own checks',
    async () => {
      const isHealthy = async ({ child, env, health, output }: Container): Promise<boolean> => {
        if (child.exitCode !== null) return false;
        if ((await image.run(health, env)).status !== 0) throw new Error(`not healthy:\n${output.said}`);
        return true;
      };

      for (const [name, container] of Object.entries(containers)) {
        const healthy = await eventually(() => isHealthy(container), STARTED_MS);
        expect({ name, healthy, said: healthy ? '' : container.output.said }).toEqual({
          name,
          healthy: true,
          said: '',
        });
      }
    },
    4 * STARTED_MS,
  );

  test('run with the settings of .env, in production', () => {
    expect(Object.keys(containers)).toEqual(['api', 'reply-worker', 'delivery-worker', 'sources-worker']);
    for (const container of Object.values(containers)) {
      expect(configOf(container)).toMatchObject({
        NODE_ENV: 'production',
        PUBLIC_URL: CHOSEN.PUBLIC_URL,
        REPLY_CONCURRENCY: 7,
        EVENT_MAX_AGE_S: 601,
        TRUST_PROXY: 1,
        REDIS_PREFIX: container.env['REDIS_PREFIX'],
      });
    }
  });

  test('serve the dashboard that was built for the image', async () => {
    const page = await fetch(`http://127.0.0.1:${admin['PORT']}/operator/`);

    expect({ status: page.status, html: (await page.text()).includes('<div id="root">') }).toEqual({
      status: 200,
      html: true,
    });
  });

  test('are unhealthy by the same checks if nothing answers', async () => {
    for (const { env, health } of Object.values(containers)) {
      const nowhere = String(await freePort());
      expect((await image.run(health, { ...env, PORT: nowhere, WORKER_HEALTH_PORT: nowhere })).status).toBe(1);
    }
  });
});

describe('commands in the image', () => {
  test('are documented: the first owner, and the doctor', () => {
    const lines = documented.map(({ line }) => line).join('\n');

    expect(lines).toContain('operator create');
    expect(lines).toContain('doctor');
  });

  test.each(documented)('$line ($page)', async ({ line }) => {
    const ended = await started.sh(line.replaceAll('@example.com', `-${randomBytes(4).toString('hex')}@example.com`));

    expect(ended).toMatchObject({ status: 0, stderr: '' });
    expect(ended.stdout).toMatch(/^((Operator|Token) [0-9a-f-]{36}|.*No problems found\.)/s);
  });

  test('npm scripts do the same, although they cannot install anything there', async () => {
    const command = (words: string[], env = admin) =>
      image.run(['node', 'scripts/run.js', 'admin', ...words, '--json'], env);
    const made = await command(['token', 'create', '--name', 'image']);
    const { token } = JSON.parse(made.stdout) as { token: string };

    const api = { PARLEY_URL: `http://127.0.0.1:${admin['PORT']}`, OPERATOR_TOKEN: token };
    const ended = await command(['operator', 'list'], { ...admin, ...api });

    expect(ended).toMatchObject({ status: 0, stderr: '' });
    expect(JSON.parse(ended.stdout)).toEqual(expect.any(Array));
  });

  test('a script that cannot be set up there says so in one line', async () => {
    const ended = await image.run(['node', 'scripts/run.js', 'quickstart', '--exit'], { SETUP_REDIS: 'wheel' });

    expect({ ...ended, stdout: '' }).toEqual({
      status: 1,
      stdout: '',
      stderr: expect.stringMatching(/^Redis is missing here, and \S+ cannot be written to to set it up\.\n$/) as string,
    });
  });
});

describe('the script that tries the image with Docker', () => {
  const tryCompose = (...args: string[]) =>
    started.sh(`node '${join(ROOT, 'scripts/try-compose.ts')}' ${args.join(' ')}`, {
      PORT: admin['PORT'] ?? '',
      ENCRYPTION_KEY: admin['ENCRYPTION_KEY'] ?? '',
    });

  test('creates the owner, signs in, gets an answer, and removes everything', async () => {
    const { status, stdout, stderr } = await tryCompose();

    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout).toMatch(
      /healthy .*\n.*owner is made .*\n.*signs in .*\n.*key is made .*\n.*turn is answered .*\n.*doctor/,
    );
    expect(stdout.trim().split('\n').at(-1)).toBe('It works.');
    expect((await started.calls()).at(-1)).toBe('compose -p parley-try down --volumes --remove-orphans');
  });

  test('removes everything, prints the logs and fails if a step fails', async () => {
    // The owner already exists, so the step that creates the owner fails.
    const { status, stderr } = await tryCompose();

    expect(status).toBe(1);
    expect(stderr).toContain('operator create --email owner@example.com --json ended with 1');
    expect((await started.calls()).slice(-2)).toEqual([
      'compose -p parley-try logs --tail 40',
      'compose -p parley-try down --volumes --remove-orphans',
    ]);
  });

  test('says so if there is no docker', async () => {
    const ended = await started.sh(
      `PATH=/nowhere exec '${process.execPath}' '${join(ROOT, 'scripts/try-compose.ts')}'`,
    );

    expect(ended).toEqual({ status: 1, stdout: '', stderr: 'docker cannot be started: spawnSync docker ENOENT\n' });
  });
});

test('a stopped container ends in order', async () => {
  for (const { child, output } of Object.values(containers)) {
    expect(child.exitCode).toBeNull();
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    expect({
      ended: await ended,
      errors: output.said.split('\n').filter((line) => line !== '' && !line.startsWith('{')),
    }).toEqual({
      ended: [0, null],
      errors: [],
    });
  }
});
