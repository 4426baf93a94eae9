import { globSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { parseAst } from 'vite';
import { expect, test } from 'vitest';

/** A room imports only from rooms of earlier lines. Rooms of the same line do not import each other. */
const ORDER = [
  ['src/platform/process'],
  ['src/platform/mongo', 'src/platform/redis'],
  ['src/platform/http'],
  ['src/assistants'],
  ['src/operators', 'src/sources', 'src/conversations'],
  ['src/events', 'src/insights'],
  ['src/turns', 'src/inbox'],
  ['src/replies', 'src/alerts', 'src/live'],
  ['src/evaluation', 'src/web-channel'],
  ['src/api'],
];
/** The files directly in `src` that workers may import. They compose the processes and may import from all rooms. */
const FOR_WORKERS = ['src/embedder.ts', 'src/service.ts', 'src/service-metrics.ts', 'src/worker-process.ts'];
/** What a process has opened, as a type. A door takes it, and so does what opens the side that a room has in a process. */
const SERVICE = 'src/service.ts';
const OPENERS = [
  'alerts/watch',
  'events/sending/sending',
  'live/live',
  'replies/answering',
  'sources/reading',
  'turns/start-turn',
];
/** Composes the API: only this file opens the doors. */
const API = 'src/api.ts';
/** Composes the API and all workers in one process. */
const ALL = 'workers/all/all.ts';
/** It has no process of its own, so the one that answers turns opens it. */
const MAINTENANCE = 'workers/maintenance/worker.ts';

/**
 * Every statement on the document is in this folder: accept and commit, and the parts of deliveries, inbox and projection.
 * So is all that an action does to it, the end of a turn included, and the events that it announces.
 */
const CONVERSATIONS_MAX_LINES = 4_203;
const MOST_FILES = 250;
/** Files of less than 60 lines that one other file imports. Most of them could be a part of it. */
const MOST_SLIGHT_FILES = 2;

type Import = { from: string; to: string };

const isNode = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null;

/** Reads each file once, because several tests need the same. */
const once = <Value>(read: (file: string) => Value): ((file: string) => Value) => {
  const known = new Map<string, Value>();
  return (file) => {
    const value = known.get(file) ?? read(file);
    known.set(file, value);
    return value;
  };
};

/** The imports of a file, including type imports, re-exports and `import()`. */
const importsOf = once((file): Import[] => {
  const found: Import[] = [];
  const note = (source: unknown): void => {
    if (!isNode(source) || typeof source.value !== 'string') return;
    const { value } = source;
    if (value.startsWith('.')) found.push({ from: file, to: join(dirname(file), value) });
    else if (value.startsWith('@parley/')) found.push({ from: file, to: value });
  };
  const walk = (node: unknown): void => {
    if (!isNode(node)) return;
    if (typeof node.type === 'string' && /^(Import|Export|TSImportType)/.test(node.type)) note(node.source);
    for (const value of Object.values(node)) walk(value);
  };
  walk(parseAst(readFileSync(file, 'utf8'), { lang: 'ts' }));
  return found;
});

/** The texts and the imported names of a file. A text that is a type, such as a key of `Pick`, does not count. */
const namesIn = (file: string): string[] => {
  const found: string[] = [];
  const walk = (node: unknown): void => {
    if (!isNode(node) || node.type === 'TSLiteralType') return;
    if (node.type === 'Literal' && typeof node.value === 'string') found.push(node.value);
    if (node.type === 'ImportSpecifier' && isNode(node.imported)) found.push(String(node.imported.name));
    for (const value of Object.values(node)) walk(value);
  };
  walk(parseAst(readFileSync(file, 'utf8'), { lang: 'ts' }));
  return found;
};

const PACKAGE = 'packages/understanding';
/** It reads files of strangers in a process of its own. */
const READING = 'packages/reading';
const files = globSync(['src/**/*.ts', 'workers/**/*.ts']);
const packageFiles = globSync(`${PACKAGE}/{src,eval}/**/*.ts`);
const readingFiles = globSync(`${READING}/src/**/*.ts`);
const imports = files.flatMap(importsOf).filter(({ to }) => /^(src|workers)\//.test(to));
const describe = ({ from, to }: Import): string => `${from} → ${to}`;

/** A part of the platform is a room of its own. */
const roomOf = (file: string): string =>
  file
    .split('/')
    .slice(0, file.startsWith('src/platform/') ? 3 : 2)
    .join('/');
const levelOf = (file: string): number => ORDER.findIndex((rooms) => rooms.includes(roomOf(file)));
const isInRoom = (file: string): boolean => levelOf(file) !== -1;
const isWorker = (file: string): boolean => file.startsWith('workers/');
/** A door of a room takes requests: `http.ts`, or a file in `http/`. Two rooms are nothing but doors. */
const isDoor = (file: string): boolean =>
  isInRoom(file) &&
  !file.startsWith('src/platform/') &&
  (/\/http(?:\/|\.ts$)/.test(file) || ['src/web-channel', 'src/api'].includes(roomOf(file)));

/**
 * What is inside a room imports what is inside earlier ones. A door may look inside every room, but follows the order among
 * doors. Workers and what they share open no door.
 */
const breaksOrder = ({ from, to }: Import): boolean => {
  if (/(^|\/)main\.ts$/.test(to)) return true;
  if (from === ALL && isWorker(to)) return !to.endsWith('/worker.ts');
  if (to === MAINTENANCE && from === 'workers/reply/worker.ts') return false;
  if (isWorker(to)) return !isWorker(from) || roomOf(from) !== roomOf(to);
  if (isWorker(from))
    return !FOR_WORKERS.includes(to) && !(from === ALL && to === API) && (isDoor(to) || !isInRoom(to));
  if (!isInRoom(from)) return isDoor(to) && from !== API;
  if (to === SERVICE) return !isDoor(from) && !OPENERS.includes(from.slice('src/'.length, -'.ts'.length));
  if (!isInRoom(to)) return true;
  if (roomOf(from) === roomOf(to)) return isDoor(to) && !isDoor(from);
  if (isDoor(from) && !isDoor(to)) return false;
  return isDoor(to) > isDoor(from) || levelOf(to) >= levelOf(from);
};

/** All code of the repository. */
const everywhere = globSync('{src,workers,packages,dashboard,scripts,test,bench,chaos,fuzz,examples}/**/*.{ts,tsx}', {
  exclude: ['**/node_modules/**', '**/dist/**'],
});
/** The relative imports of a file. So many files are not parsed. */
const targetsOf = (file: string): string[] =>
  [...readFileSync(file, 'utf8').matchAll(/(?:\bfrom|\bimport\(|^import) ?'(\.[^']+)'/gm)].map(([, to = '']) =>
    join(dirname(file), to),
  );

/** Finds an import that leads back to a file on the current path. Returns null if there is no cycle. */
const findCycle = (): string[] | null => {
  const targets = new Map(everywhere.map((file) => [file, targetsOf(file)]));
  const done = new Set<string>();
  const follow = (file: string, way: string[]): string[] | null => {
    if (way.includes(file)) return [...way.slice(way.indexOf(file)), file];
    if (done.has(file)) return null;
    for (const to of targets.get(file) ?? []) {
      const cycle = follow(to, [...way, file]);
      if (cycle) return cycle;
    }
    done.add(file);
    return null;
  };
  for (const file of everywhere) {
    const cycle = follow(file, []);
    if (cycle) return cycle;
  }
  return null;
};

test('the order names every room of src, and workers are what starts them', () => {
  const rooms = new Set(files.filter((file) => !isWorker(file) && file.split('/').length > 2).map(roomOf));
  expect(rooms).toEqual(new Set(ORDER.flat()));
  const table = readFileSync('CONTRIBUTING.md', 'utf8').matchAll(/^\| `(src\/[\w/-]+)\/` \|/gm);
  expect([...table].map(([, room = '']) => room).filter((room) => room !== 'src/platform')).toEqual(ORDER.flat());
  expect(imports.length).toBeGreaterThan(files.length);

  expect(
    files
      .filter(isWorker)
      .map((file) => file.split(/[\\/]/).join('/'))
      .toSorted(),
  ).toEqual([
    ALL,
    'workers/all/main.ts',
    ...['delivery/main', 'delivery/worker'].map((name) => `workers/${name}.ts`),
    MAINTENANCE,
    ...['reply/main', 'reply/worker', 'sources/main', 'sources/worker'].map((name) => `workers/${name}.ts`),
  ]);
});

test('imports follow the order of rooms, no main.ts is imported, and the workers do not import each other', () => {
  expect(imports.filter(breaksOrder).map(describe)).toEqual([]);
  const takeService = files.filter((file) => isInRoom(file) && targetsOf(file).includes(SERVICE));
  expect(takeService.length).toBeGreaterThan(OPENERS.length);
  expect(
    takeService.filter((file) => !/import type .* from '[./]+service.ts'/.test(readFileSync(file, 'utf8'))),
  ).toEqual([]);
  const doors = files.filter(isDoor);
  expect(doors.length).toBeGreaterThan(30);
  expect(doors.filter((file) => readFileSync(file, 'utf8').includes("from 'mongoose'"))).toEqual([]);
});

/** What a folder outside `src` may import of the others. A test imports what it tests. */
const KIT = 'test/kit';
const MAY_IMPORT: Record<string, string[]> = {
  [KIT]: [KIT, 'scripts/services'],
  bench: ['bench', KIT, 'scripts/services'],
  chaos: ['chaos', KIT, 'scripts/services'],
  scripts: ['scripts', KIT],
  test: ['test', 'scripts', 'examples', 'dashboard'],
};
const PRODUCT = ['src/', 'workers/', 'packages/', 'dashboard/src/'];

test.for(Object.entries(MAY_IMPORT))('%s imports the product, the kit and itself', ([folder, allowed]) => {
  const own = everywhere.filter((file) => file.startsWith(`${folder}/`) && (folder === KIT || !file.startsWith(KIT)));
  const wrong = own.flatMap((from) =>
    targetsOf(from)
      .filter((to) => ![...PRODUCT, ...allowed].some((start) => to.startsWith(start)))
      .map((to) => describe({ from, to })),
  );

  expect(own.length).toBeGreaterThan(15);
  expect(wrong).toEqual([]);
});

test('only the inside of src/conversations opens the collections of a conversation; live updates watch their changes', () => {
  const owned = ['conversations', 'tombstones', 'conversationModels', 'CONVERSATIONS', 'TOMBSTONES'];
  const named = [...files, ...globSync('scripts/**/*.ts')]
    .filter((file) => isDoor(file) || !file.startsWith('src/conversations/'))
    .flatMap((file) => namesIn(file).map((name) => ({ file, name })))
    .filter(({ name }) => owned.includes(name));
  expect(named.map(({ file, name }) => `${file}: ${name}`)).toEqual([
    'src/live/change-feed.ts: CONVERSATIONS',
    'src/live/change-feed.ts: TOMBSTONES',
  ]);
});

test('OpenTelemetry is loaded only when traces are on: nothing but types are imported from it at the start', () => {
  const named = [...files, ...packageFiles, ...readingFiles].filter((file) =>
    readFileSync(file, 'utf8').includes('@opentelemetry/'),
  );
  expect(named).toEqual(['src/platform/process/tracing.ts']);
  const source = readFileSync('src/platform/process/tracing.ts', 'utf8');
  const atStart = [...source.matchAll(/^import (?!type ).*'@opentelemetry/gm)];
  expect(atStart).toEqual([]);
});

test('no worker loads Express: it is a tenth of what a worker loads', () => {
  const loaded = new Set(['delivery', 'reply', 'sources'].map((name) => `workers/${name}/worker.ts`));
  const withExpress: string[] = [];
  for (const file of loaded) {
    const named = readFileSync(file, 'utf8').matchAll(/^(?:import|export) (?!type )[^;']*from '([^']+)'/gm);
    for (const [, to = ''] of named) {
      if (to === 'express') withExpress.push(file);
      else if (to.startsWith('.')) loaded.add(join(dirname(file), to));
    }
  }

  expect(withExpress).toEqual([]);
  expect(loaded.size).toBeGreaterThan(100);
});

test('a package imports nothing of ours, and others use only its doors', () => {
  const exclude = ['**/node_modules/**']; // the bench installs a contender
  const outside = globSync('{src,workers,scripts,bench,chaos,test}/**/*.ts', { exclude }).flatMap(importsOf);

  for (const [folder, inside] of [
    [PACKAGE, packageFiles],
    [READING, readingFiles],
  ] as const) {
    const own = inside.flatMap(importsOf);
    expect(own.filter(({ to }) => !to.startsWith(`${folder}/`)).map(describe)).toEqual([]);
    expect(outside.filter(({ to }) => to.startsWith(`${folder}/`)).map(describe)).toEqual([]);
    expect(own.length).toBeGreaterThan(inside.length);
  }
});

test('the design names every file of the rooms that a turn and an event go through', () => {
  const design = readFileSync('docs/design.md', 'utf8');
  const crossed = globSync('src/{turns,conversations,replies,events}/**/*.ts');
  // `store.ts`, or `{store,conversation}.ts` for two in one folder.
  const isNamed = (file: string): boolean => new RegExp(`[\`/ {,]${basename(file, '.ts')}(?:[.]ts|[,}])`).test(design);

  expect(crossed.length).toBeGreaterThan(40);
  expect(crossed.filter((file) => !isNamed(file))).toEqual([]);
});

test.for([
  ['a turn', 40],
  ['an event', 24],
] as const)('%s goes through at most %i files, as the design tells it', ([what, most]) => {
  const design = readFileSync('docs/design.md', 'utf8');
  const [, street = ''] = design.slice(design.indexOf(`## How ${what} moves`)).split('```');
  const files = street
    .replace(/([\w/-]*)\{([\w,-]+)\}\.ts/g, (_whole, folder: string, names: string) =>
      names
        .split(',')
        .map((name) => `${folder}${name}.ts`)
        .join(' '),
    )
    .match(/[\w/-]+\.ts/g);
  const crossed = new Set(files);

  expect(crossed.size).toBeGreaterThan(20);
  expect(crossed.size).toBeLessThanOrEqual(most);
});

test('no import is circular', () => {
  expect(everywhere.length).toBeGreaterThan(1_000);
  expect(findCycle()).toBeNull();
});

test.for([
  [
    'the services and packages',
    [...files, ...packageFiles.filter((file) => file.includes('/src/')), ...readingFiles],
    700,
  ],
  ['the dashboard', globSync('dashboard/src/**/*.{ts,tsx}'), 300],
] as const)('no name of %s is exported twice', ([, sources, least]) => {
  const exported = sources.flatMap((file) => {
    const names = readFileSync(file, 'utf8').matchAll(
      /^export (?:const|type|class|interface|(?:async )?function) (\w+)/gm,
    );
    return [...new Set([...names].map(([, name]) => name))].map((name) => ({ name, file }));
  });
  const places = Map.groupBy(exported, ({ name }) => name);
  expect([...places.values()].filter((all) => all.length > 1)).toEqual([]);
  expect(places.size).toBeGreaterThan(least);
});

test('what a file exports, another one names', () => {
  const named = new Map<string, Set<string>>();
  for (const file of [...everywhere, 'vitest.config.ts'])
    for (const [name] of readFileSync(file, 'utf8').matchAll(/\w+/g)) {
      const inFiles = named.get(name) ?? new Set();
      named.set(name, inFiles.add(file));
    }
  const unused = everywhere
    .filter((file) => !file.startsWith('packages/'))
    .flatMap((file) =>
      [...readFileSync(file, 'utf8').matchAll(/^export (?:const|type|class|interface|(?:async )?function) (\w+)/gm)]
        .filter(([, name = '']) => named.get(name)?.size === 1)
        .map(([, name]) => `${file}: ${name}`),
    );

  expect(unused).toEqual([]);
});

test('an exported type is declared, so that a reader lands on its members', () => {
  const inferred = files.flatMap((file) => {
    const found = readFileSync(file, 'utf8').matchAll(/^export type (\w+)(?:<.*>)? =\s+(?:Awaited<)?ReturnType</gm);
    return [...found].map(([, name]) => `${file}: ${name}`);
  });
  expect(inferred).toEqual([]);
});

test('the folder of the aggregate stays below its size limit', () => {
  const inside = globSync('src/conversations/**/*.ts').filter((file) => !isDoor(file));
  const lines = inside.map((file) => readFileSync(file, 'utf8').split('\n').length - 1);
  expect(lines.reduce((sum, count) => sum + count, 0)).toBeLessThanOrEqual(CONVERSATIONS_MAX_LINES);
});

test('the modules are few and whole', () => {
  const all = [...files, ...packageFiles];
  const importers = new Map(all.map((file) => [file, new Set<string>()]));
  for (const { from, to } of all.flatMap(importsOf)) importers.get(to)?.add(from);
  const isShort = (file: string): boolean => readFileSync(file, 'utf8').split('\n').length <= 60;
  const slight = all.filter((file) => importers.get(file)?.size === 1 && isShort(file));

  expect(all.length).toBeLessThanOrEqual(MOST_FILES);
  expect(slight.length).toBeLessThanOrEqual(MOST_SLIGHT_FILES);
});
