import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');
const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
// The imported path is not a literal, because TypeScript would look for types, and the launcher has none.
type Targets = {
  targetsIn: (root: string) => { chaos: { parts: object } };
  findTarget: (targets: object, words: string[]) => object | undefined;
};
const file = join(ROOT, 'scripts/setup/targets.js');
const { targetsIn, findTarget } = (await import(file)) as Targets;
const targets = targetsIn(ROOT);

const PAGES = [
  'CONTRIBUTING.md',
  'README.md',
  'packages/client/README.md',
  ...globSync('{docs,bench,chaos}/*.md', { cwd: ROOT }),
];
const contributing = read('CONTRIBUTING.md');
const all = (text: string, pattern: RegExp): string[] => [...text.matchAll(pattern)].map(([, found = '']) => found);

describe('the npm scripts', () => {
  test('are at most twelve, and each is a target of the launcher', () => {
    expect(Object.keys(scripts).length).toBeLessThanOrEqual(12);
    for (const command of Object.values(scripts)) {
      const [, , ...words] = command.split(' ');
      expect(command).toMatch(/^node scripts\/run\.js /);
      expect(findTarget(targets, words)).toBeDefined();
    }
  });

  test.for(PAGES)('that %s names exist', (page) => {
    const text = read(page);
    const named = all(text, /npm run (?:--silent )?([a-z][\w:-]*)/g);
    expect(named.filter((name) => !(name in scripts))).toEqual([]);

    const launched = all(text, /node scripts\/run\.js ((?:[a-z][\w-]*)(?: [a-z][\w-]*)?)/g);
    expect(launched.filter((words) => !findTarget(targets, words.split(' ')))).toEqual([]);

    const faults = all(text, /npm run chaos -- ([a-z][a-z-]*)/g);
    expect(faults.filter((part) => !(part in targets.chaos.parts))).toEqual([]);
  });
});

describe('CONTRIBUTING.md', () => {
  test('explains every npm script', () => {
    const named = new Set(all(contributing, /`npm (?:run )?([a-z][\w:-]*)/g));
    expect(Object.keys(scripts).filter((name) => !named.has(name))).toEqual([]);
  });

  test('names only files and folders that exist', () => {
    const paths = all(
      contributing,
      /((?:src|workers|dashboard|test|scripts|docs|packages|bench|chaos)\/[\w./-]*[\w/])/g,
    );
    const missing = [...new Set(paths)].filter((path) => !existsSync(join(ROOT, path)));
    expect(missing.filter((path) => path !== 'docs/images')).toEqual([]);
  });

  test('describes every folder of src and no other', () => {
    const described = all(contributing, /^\| `src\/([\w-]+)\/`/gm);
    const there = globSync('src/*/', { cwd: ROOT }).map((path) => path.split(/[\\/]/)[1] ?? '');
    expect(described.toSorted()).toEqual(there.filter((name) => !name.includes('.')).toSorted());
  });

  test('names constants in the files that declare them', () => {
    const steps = contributing.split('\n').map((_, nth, lines) => lines.slice(nth, nth + 3).join(' '));
    const inside = (name: string): boolean =>
      steps.some(
        (step) =>
          step.includes(`\`${name}\``) &&
          all(step, /`((?:src|workers)\/[\w./-]+\.ts)`/g).some((file) => read(file).includes(name)),
      );
    const names = [...new Set(all(contributing, /`([A-Z][A-Z_]{5,}|KeyView|EventPayloads|deadlineMs)`/g))];
    const settings = read('.env.example');
    expect(names.filter((name) => !settings.includes(name) && !inside(name))).toEqual([]);
  });

  test('agrees with .nvmrc, .editorconfig and the files for the forge', () => {
    expect(read('.nvmrc').trim()).toBe('24');
    expect(read('.editorconfig')).toContain('indent_size = 2');
    expect(read('.github/workflows/ci.yml')).toContain('run: .ci/run');
    const uses = all(read('.github/workflows/ci.yml'), /uses: (\S+)/g);
    expect(uses.filter((action) => !/@v\d+\.\d+\.\d+$/.test(action))).toEqual([]);
  });
});
