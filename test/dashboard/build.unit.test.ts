import { execFileSync } from 'node:child_process';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createHash, randomBytes } from 'node:crypto';
import { expect, onTestFinished, test, vi } from 'vitest';
import { firstLoadBudget } from '../../dashboard/build/budget.ts';

const ROOT = join(import.meta.dirname, '../..');

type Context = { root: string; env: NodeJS.ProcessEnv };
type Built = { folder: string; sources: string[]; files: string[] };
type Step = { find: (context: Context) => { text: string } | undefined; make: (context: Context) => Promise<void> };
// The imported path is not a literal, because TypeScript would look for types, and the launcher has none.
const file = join(ROOT, 'scripts/setup/built.js');
const { dashboardStep, DASHBOARD, WIDGET } = (await import(file)) as {
  dashboardStep: Step;
  DASHBOARD: Built;
  WIDGET: Built;
};

/** A clone with the real sources and a builder that counts its calls. */
const aClone = (builder = 'appendFileSync("builds", "x")'): string => {
  const root = mkdtempSync(join(tmpdir(), 'parley-dashboard-build-'));
  onTestFinished(() => rmSync(root, { recursive: true }));
  for (const path of [...DASHBOARD.sources, ...DASHBOARD.files])
    cpSync(join(ROOT, path), join(root, path), { recursive: true });
  mkdirSync(join(root, 'node_modules/vite/bin'), { recursive: true });
  const script = `const { appendFileSync, mkdirSync, writeFileSync } = require('node:fs');
${builder};
mkdirSync('dashboard/dist', { recursive: true });
writeFileSync('dashboard/dist/.weight', 'first load ' + process.env.NODE_ENV);`;
  writeFileSync(join(root, 'node_modules/vite/bin/vite.js'), script);
  return root;
};

const setUp = async (root: string) => {
  const context = { root, env: { ...process.env, NODE_ENV: 'test' } };
  const found = dashboardStep.find(context);
  if (!found) await dashboardStep.make(context);
  return dashboardStep.find(context)?.text;
};

test('the dashboard is built once, and again after a change of sources or packages', async () => {
  const root = aClone();
  const builds = () => readFileSync(join(root, 'builds'), 'utf8').length;

  const first = await setUp(root);
  await setUp(root);
  const unchanged = builds();
  writeFileSync(join(root, 'dashboard/src/new.ts'), 'export const more = 1;');
  await setUp(root);
  const afterSource = builds();
  writeFileSync(join(root, 'package-lock.json'), '{}');
  await setUp(root);

  expect(first).toBe('built, first load production');
  expect([unchanged, afterSource, builds()]).toEqual([1, 2, 3]);
});

test('a failed build is reported and repeated by the next command', async () => {
  const root = aClone('console.error("error: no such page"); process.exit(1)');

  await expect(setUp(root)).rejects.toThrow('the dashboard could not be built: error: no such page');
  expect(dashboardStep.find({ root, env: process.env })).toBeUndefined();
});

/** Builds both in a folder that holds only the files that set-up watches. Returns each file with a hash of its bytes. */
const buildElsewhere = (): Record<string, string> => {
  const root = mkdtempSync(join(tmpdir(), 'parley-build-'));
  onTestFinished(() => rmSync(root, { recursive: true }));
  const needed = [DASHBOARD, WIDGET].flatMap(({ sources, files }) => [...sources, ...files]);
  for (const path of [...needed, 'tsconfig.json', 'package.json'])
    cpSync(join(ROOT, path), join(root, path), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'));
  return Object.fromEntries(
    [DASHBOARD, WIDGET].flatMap(({ folder }) => {
      const vite = ['node_modules/vite/bin/vite.js', 'build', folder, '--config', `${folder}/vite.config.ts`];
      execFileSync(process.execPath, vite, {
        cwd: root,
        env: { ...process.env, NODE_ENV: 'production' },
        stdio: 'pipe',
      });
      const dist = join(root, folder, 'dist');
      return readdirSync(dist, { recursive: true, encoding: 'utf8' })
        .filter((name) => statSync(join(dist, name)).isFile())
        .map((name) => {
          const bytes = readFileSync(join(dist, name));
          return [`${folder}/${name}`, createHash('sha256').update(bytes).digest('hex')];
        });
    }),
  );
};

test('what is watched for changes is all that both are built from, and gives the same bytes wherever it is built', () => {
  const first = buildElsewhere();

  expect(Object.keys(first).length).toBeGreaterThanOrEqual(23);
  expect(buildElsewhere()).toEqual(first);
});

const chunk = (fileName: string, bytes: number, more: object = {}) => ({
  type: 'chunk',
  fileName,
  code: randomBytes(bytes).toString('latin1'), // random data does not compress
  imports: [],
  isEntry: false,
  ...more,
});

const weigh = (files: { fileName: string }[]) => {
  const emitFile = vi.fn<(file: { source: string }) => void>();
  const generate = firstLoadBudget().generateBundle as unknown as (options: object, bundle: object) => void;
  generate.call(
    { emitFile, info: () => undefined },
    {},
    Object.fromEntries(files.map((file) => [file.fileName, file])),
  );
  return emitFile.mock.calls[0]?.[0].source;
};

test('the first load is the entry with its imports, and more than 250 kB fails the build', () => {
  const page = chunk('page.js', 300_000);
  const entry = chunk('index.js', 50_000, { isEntry: true, imports: ['shared.js'] });

  expect(weigh([entry, chunk('shared.js', 20_000), page])).toMatch(/^first load \d\d+\.\d kB of 250\.0 kB$/);
  expect(() => weigh([entry, chunk('shared.js', 210_000), page])).toThrow(/^too heavy: first load 3\d\d\.\d kB/);
});
