import { globSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { LongestFirst } from './test/support/longest-first.ts';
import { plantFault } from './test/kit/planted.ts';

const NODE_NEEDED = 24;

if (Number(process.versions.node.split('.')[0]) < NODE_NEEDED) {
  throw new Error(
    `Node ${NODE_NEEDED} or later is needed, this is ${process.versions.node}. "npm test" brings its own.`,
  );
}

const inLane = (lane: string): string => `{test,packages,fuzz,chaos}/**/*.${lane}.test.ts`;
/** Files that the long suite runs in their large form too. */
const WITH_SIZES = globSync('{test,packages,fuzz,chaos}/**/*.test.ts', { exclude: ['**/node_modules/**'] }).filter(
  (file) => readFileSync(file, 'utf8').includes("support/size.ts'"),
);
const SERVICES = ['test/support/global-setup.ts'];
const ONE_AT_A_TIME = { maxWorkers: 1, sequence: { sequencer: LongestFirst, groupOrder: 1 } };

export default defineConfig({
  plugins: process.env.PLANT ? [plantFault(process.env.PLANT)] : [],
  test: {
    // A transform kept on disk would hide a planted fault, or worse, plant it into honest runs.
    fsModuleCache: !process.env.PLANT,
    pool: 'forks',
    // Two more than there are processors: most files wait for a service or a deadline a good part of their time. With three
    // more, a run takes longer.
    maxWorkers: Math.min(4, availableParallelism() + 2),
    sequence: { sequencer: LongestFirst },
    // What a test waits for has two minutes (test/support/eventually.ts). A file that hangs holds one of the places for this time.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    teardownTimeout: 60_000,
    // Each process runs many files in turn, because loading the service takes longer than most of them.
    isolate: false,
    setupFiles: ['test/support/close-what-is-open.ts'],
    // A lane is the middle of a file's name. Lanes that share a project share its processes.
    projects: [
      { extends: true, test: { name: 'unit', include: [inLane('unit')] } },
      {
        extends: true,
        test: {
          name: 'service',
          include: ['{test,packages,fuzz,chaos}/**/*.test.ts'],
          exclude: [...['unit', 'timed', 'long'].map(inLane), '**/node_modules/**'],
          globalSetup: SERVICES,
        },
      },
      // What judges latency, stalls, memory or overload would measure the other files, so it runs after them, one at a time.
      { extends: true, test: { name: 'timed', include: [inLane('timed')], globalSetup: SERVICES, ...ONE_AT_A_TIME } },
      // Only `npm run test:long` runs these.
      {
        extends: true,
        test: {
          name: 'long',
          include: [inLane('long'), ...WITH_SIZES],
          env: { TEST_SIZE: 'long' },
          testTimeout: 600_000,
          hookTimeout: 600_000,
          isolate: true,
          globalSetup: SERVICES,
          ...ONE_AT_A_TIME,
        },
      },
    ],
  },
});
