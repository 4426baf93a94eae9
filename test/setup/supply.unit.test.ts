import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { launch } from '../kit/processes.ts';

const ROOT = join(import.meta.dirname, '../..');
const read = (name: string): string => readFileSync(join(ROOT, name), 'utf8');

type Locked = { version?: string; license?: string; dev?: boolean; link?: boolean; hasInstallScript?: boolean };
const { packages } = JSON.parse(read('package-lock.json')) as { packages: Record<string, Locked> };
const locked = Object.entries(packages)
  .filter(([path, { link }]) => path.startsWith('node_modules/') && link !== true)
  .map(([path, one]) => ({ name: path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length), ...one }));

/** Licences under which a package may be a part of the service. */
const ALLOWED = new Set([
  '0BSD',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'BlueOak-1.0.0',
  'CC0-1.0',
  'ISC',
  'MIT',
  'MIT-0',
  'PSF-2.0',
  'Zlib',
]);
/** Their manifests name no licence of the list. What their licence files say: */
const REVIEWED: Record<string, string> = { 'duck@0.1.12': 'BSD-2-Clause' };

/** True if one of several licences may be chosen, or all that count together are allowed. */
const isAllowed = (license: string): boolean => {
  const plain = license.replaceAll(/[()]/g, '');
  if (plain.includes(' OR ')) return plain.split(' OR ').some(isAllowed);
  return plain.split(' AND ').every((one) => ALLOWED.has(one));
};

test('every package of the service has a licence that is allowed', () => {
  const used = locked.filter(({ dev }) => dev !== true);

  const refused = used
    .map(({ name, version, license = 'none' }) => ({ id: `${name}@${version}`, license }))
    .filter(({ id, license }) => !isAllowed(REVIEWED[id] ?? license));

  expect(used.length).toBeGreaterThan(150);
  expect(refused).toEqual([]);
  expect(['GPL-3.0-only', '(MIT AND GPL-3.0-only)', 'none'].filter(isAllowed)).toEqual([]);
});

test('no package runs a script when it is installed, and each that has one was reviewed', () => {
  const { allowScripts } = JSON.parse(read('package.json')) as { allowScripts: Record<string, boolean> };
  const withScript = new Set(locked.filter(({ hasInstallScript }) => hasInstallScript).map(({ name }) => name));

  // npm before version 11 knows only the first of the two.
  expect(read('.npmrc')).toContain('ignore-scripts=true\n');
  expect(allowScripts).toEqual(Object.fromEntries([...withScript].map((name) => [name, false])));
  expect(read('Dockerfile').match(/^COPY package.json.*$/gm)).toEqual([
    expect.stringContaining('.npmrc'),
    expect.stringContaining('.npmrc'),
  ]);
});

test('the image has no program but Node, and nothing runs in it while it is built', () => {
  const last =
    read('Dockerfile')
      .split(/^FROM /m)
      .at(-1) ?? '';

  expect(last).toMatch(/^gcr\.io\/distroless\/nodejs24-/);
  expect(last).not.toMatch(/^RUN /m);
  expect(last).toMatch(/^USER [1-9]\d*:[1-9]\d*$/m);
});

const ADVISORY = { url: 'https://github.com/advisories/GHSA-aaaa-bbbb-cccc', title: 'Bad', severity: 'high' };
const FOUND = { vulnerabilities: { inner: { via: [ADVISORY] }, outer: { via: ['inner'] } } };

/** Runs the audit with an npm that says this, and with this list of accepted advisories. */
const audit = async (said: object, accepted: object[] = []) => {
  const folder = mkdtempSync(join(tmpdir(), 'parley-audit-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, 'said.json'), JSON.stringify(said));
  writeFileSync(join(folder, 'accepted.json'), JSON.stringify(accepted));
  writeFileSync(join(folder, 'npm'), `#!/bin/sh\ncat '${folder}/said.json'; exit 1\n`, { mode: 0o755 });
  const env = { ...process.env, PATH: `${folder}${delimiter}${process.env['PATH']}` };
  const { status, stdout } = await launch(process.execPath, ['scripts/audit.ts', join(folder, 'accepted.json')], {
    env,
  }).ended;
  return { status, told: stdout };
};

test('the audit fails for a known hole, unless it is accepted until a day that has not passed', async () => {
  const accept = (until: string) => [{ advisory: 'GHSA-aaaa-bbbb-cccc', until, because: 'we never call it' }];

  expect(await audit(FOUND)).toEqual({
    status: 1,
    told: 'high: inner: Bad (GHSA-aaaa-bbbb-cccc)\n1 open, 0 accepted\n',
  });
  expect(await audit(FOUND, accept('2999-01-01'))).toEqual({ status: 0, told: '0 open, 1 accepted\n' });
  expect((await audit(FOUND, accept('2020-01-01'))).status).toBe(1);
  expect((await audit({ vulnerabilities: {} })).status).toBe(0);
});

test('the audit fails if the registry does not answer', async () => {
  expect(await audit({ error: { summary: 'ENOTFOUND' } })).toEqual({ status: 1, told: '' });
});
