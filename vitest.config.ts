import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { unitTests } from './test/support/kinds.ts';
import { LongestFirst } from './test/support/longest-first.ts';
import { plantFault } from './test/support/planted.ts';

const NODE_NEEDED = 24;

if (Number(process.versions.node.split('.')[0]) < NODE_NEEDED) {
  throw new Error(
    `Node ${NODE_NEEDED} or later is needed, this is ${process.versions.node}. "npm test" brings its own.`,
  );
}

const unit = unitTests();

export default defineConfig({
  plugins: process.env.PLANT ? [plantFault(process.env.PLANT)] : [],
  test: {
    // A transform kept on disk would hide a planted fault, or worse, plant it into honest runs.
    fsModuleCache: !process.env.PLANT,
    // A process for each file: files start servers, handle signals and count what is left open.
    pool: 'forks',
    // One more than there are processors: most files wait for a service or a deadline a good part of their time.
    maxWorkers: Math.min(4, availableParallelism() + 1),
    sequence: { sequencer: LongestFirst },
    testTimeout: 30_000,
    hookTimeout: 60_000,
    teardownTimeout: 20_000,
    projects: [
      {
        extends: true,
        test: {
          name: 'service',
          include: ['test/**/*.test.ts', 'packages/**/*.test.ts'],
          exclude: [...unit, '**/node_modules/**'],
          globalSetup: ['test/support/global-setup.ts'],
        },
      },
      { extends: true, test: { name: 'unit', include: unit } },
    ],
  },
});
