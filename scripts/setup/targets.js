import { join } from 'node:path';

/** The commands of `scripts/run.js`: what each command needs, and the programs that it runs. */
export const targetsIn = (root) => {
  const tool = (name) => join(root, 'node_modules/.bin', name);
  const node = (file, ...options) => ['node', ...options, file];

  // Several checkers would check shared types once each.
  const TSC = [tool('tsc'), '--checkers', '1'];
  const TYPES = [TSC, ...['dashboard', 'packages/widget'].map((folder) => [...TSC, '-p', folder])];
  const FORMAT = [tool('biome'), 'format', '.'];
  const RULES = [tool('oxlint'), '--type-aware'];
  const VITEST = [tool('vitest'), 'run'];
  const suite = (...args) => [...node('scripts/test.ts'), ...args];
  const CHECK_TYPES = ['--check', 'node scripts/run.js lint types'];
  const SLOW_LANES = ['process', 'browser'].flatMap((lane) => ['--exclude', `**/*.${lane}.test.ts`]);
  const QUICK = ['--project', 'unit', '--project', 'service', ...SLOW_LANES];
  const CHECK_ALL = ['--check', 'node scripts/run.js lint'];
  const VITE = [tool('vite'), 'dashboard', '--config', 'dashboard/vite.config.ts'];

  const CODE = ['packages'];
  const PAGES = [...CODE, 'dashboard', 'widget'];
  const MODEL = [...CODE, 'semantic'];
  const ALL = [...PAGES, 'redis', 'mongodb', 'semantic'];
  const BROWSER = [...ALL, 'chromium'];

  const typecheck = { needs: CODE, commands: () => TYPES };
  const format = {
    needs: CODE,
    commands: (args) => [[tool('biome'), 'format', '--write', ...(args.length > 0 ? args : ['.'])]],
  };
  const running = (file) => (args) => [[...node(file), ...args]];

  return {
    quickstart: { needs: ALL, verbose: true, commands: running('scripts/quickstart.ts') },
    dev: {
      needs: ALL,
      verbose: true,
      commands: (args) => [[...node('scripts/quickstart.ts'), '--watch', ...args]],
      parts: { dashboard: { needs: CODE, commands: (args) => [[...VITE, ...args]] } },
    },
    // Without arguments, all tests run. If tests are named, they ask the set-up themselves for the services that they
    // need (scripts/services/installed.ts). Those that open pages would otherwise see an older dashboard.
    test: {
      needs: (args) => {
        const [first] = named(args);
        if (first === undefined) return [...BROWSER, 'python'];
        if (first === '--quick') return ALL;
        return args.some((arg) => /browser|dashboard|widget/.test(arg)) ? PAGES : CODE;
      },
      verbose: true,
      commands: (args) => {
        const [first, ...rest] = named(args);
        const strict = args.filter((arg) => arg === STRICT);
        if (first === undefined) return [suite(...CHECK_ALL, '--project', '!long', ...strict)];
        if (first === '--quick') return [suite(...CHECK_TYPES, ...QUICK, ...strict)];
        if (first === '--unit') return [[...VITEST, '--project', 'unit', ...rest]];
        const lanes = args.some((arg) => arg.includes('.long.test.ts')) ? 'long' : '!long';
        return [[...VITEST, '--project', lanes, ...args]];
      },
      parts: {
        long: {
          needs: [...BROWSER, 'python'],
          verbose: true,
          commands: (args) => [suite('--project', 'long', ...args)],
        },
      },
    },
    planted: { needs: BROWSER, verbose: true, commands: () => [node('scripts/planted.ts')] },
    lint: {
      needs: CODE,
      commands: () => [...TYPES, FORMAT, RULES],
      parts: { types: typecheck, format, api: { needs: CODE, commands: running('scripts/lint-api.ts') } },
    },
    typecheck,
    format,
    eval: { needs: MODEL, commands: running('scripts/eval.ts') },
    bench: {
      needs: ALL,
      commands: running('bench/run.ts'),
      parts: {
        order: { needs: ALL, verbose: true, commands: running('bench/order.ts') },
        isolation: { needs: ALL, verbose: true, commands: running('bench/isolation.ts') },
        page: { needs: CODE, commands: running('bench/page.ts') },
        engine: {
          needs: MODEL,
          commands: () => [node('bench/engine.ts', '--expose-gc'), node('bench/understanding.ts')],
        },
      },
    },
    chaos: {
      needs: ALL,
      verbose: true,
      commands: running('chaos/service.ts'),
      parts: {
        delivery: { needs: ALL, verbose: true, commands: running('chaos/delivery.ts') },
        recovery: { needs: ALL, verbose: true, commands: running('chaos/recovery.ts') },
        stop: { needs: ALL, verbose: true, commands: running('chaos/stop.ts') },
        load: { needs: ALL, verbose: true, commands: running('chaos/load.ts') },
        soak: { needs: ALL, verbose: true, commands: running('chaos/soak.ts') },
        'quick-messages': { needs: ALL, verbose: true, commands: running('chaos/quick-messages.ts') },
      },
    },
    // The parts are test files; `npm test` runs them in a short form. The last one is a program.
    fuzz: {
      needs: (parts) => [
        ...(hasPart(parts, 'browser') ? [...PAGES, 'chromium'] : CODE),
        'redis',
        'mongodb',
        ...(hasPart(parts, 'schema') ? ['schemathesis'] : []),
      ],
      verbose: true,
      commands: (parts) => [
        ...(filesOf(parts).length > 0 ? [['env', 'FUZZ=whole', ...VITEST, ...ALONE, ...filesOf(parts)]] : []),
        ...(hasPart(parts, 'schema') ? [['env', 'FUZZ=whole', ...node('fuzz/schema.ts')]] : []),
      ],
    },
    screenshots: { needs: BROWSER, verbose: true, commands: running('test/dashboard/screenshots.ts') },
    bridge: { needs: CODE, commands: running('examples/channel-bridge/main.ts') },
    admin: { needs: CODE, commands: running('scripts/admin.ts') },

    // Each of these targets starts one process, for operators with their own supervisor.
    start: {
      parts: {
        all: { needs: [...PAGES, 'semantic'], commands: running('workers/all/main.ts') },
        api: { needs: PAGES, commands: running('src/main.ts') },
        'reply-worker': { needs: MODEL, commands: running('workers/reply/main.ts') },
        'delivery-worker': { needs: CODE, commands: running('workers/delivery/main.ts') },
        'sources-worker': { needs: MODEL, commands: running('workers/sources/main.ts') },
      },
    },
    build: {
      parts: {
        dashboard: { needs: PAGES, verbose: true, commands: () => [] },
        // Its own script compiles it.
        client: { needs: CODE, commands: () => [['npm', 'pack', '--ignore-scripts=false', './packages/client']] },
        python: { needs: [], commands: () => [['python3', '-m', 'pip', 'wheel', '--no-deps', './packages/python']] },
      },
    },
    generate: { needs: CODE, commands: running('scripts/generate.ts') },
    audit: { needs: CODE, commands: running('scripts/audit.ts') },
    compose: { needs: [], commands: running('scripts/try-compose.ts') },

    // Prints how to start the services. A test that runs without this launcher calls it.
    locate: { needs: (args) => (args.length > 0 ? args : ['redis', 'mongodb']), printsFound: true },
  };
};

/** A stall is the part's own, and a part may take long. */
const ALONE = ['--no-file-parallelism', '--testTimeout=1800000'];
const FUZZ = {
  addresses: ['fuzz/addresses.'],
  tenants: ['fuzz/tenants.'],
  browser: ['fuzz/browser.'],
  bytes: ['fuzz/bytes.', 'test/chat/hostile-bodies.'],
  properties: ['fuzz/properties.', 'test/chat/dedupe-model.', 'test/turns/quota.'],
};
/** The files of these parts of the fuzz, or of all. */
const filesOf = (parts) =>
  (parts.length > 0 ? parts : Object.keys(FUZZ))
    .filter((part) => part !== 'schema')
    .flatMap((part) => FUZZ[part] ?? part);
const hasPart = (parts, name) => parts.length === 0 || parts.includes(name);

const STRICT = '--strict';
/** What is named to be run, or nothing for all. */
const named = (args) => args.filter((arg) => arg !== STRICT);

/** The target of a command line and its remaining arguments. Undefined if no target has that name. */
export const findTarget = (targets, [name, ...args]) => {
  const target = Object.hasOwn(targets, name ?? '') ? targets[name] : undefined;
  const part = target?.parts && Object.hasOwn(target.parts, args[0] ?? '') ? target.parts[args[0]] : undefined;
  if (part) return { ...part, args: args.slice(1) };
  return target?.needs && { ...target, args };
};

export const usageOf = (targets) =>
  Object.entries(targets)
    .flatMap(([name, { needs, parts }]) => {
      const inside = parts ? Object.keys(parts).join('|') : '';
      if (!needs) return `${name} ${inside}`;
      return inside ? `${name} [${inside}]` : name;
    })
    .join('\n  ');
