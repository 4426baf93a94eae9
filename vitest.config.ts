import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { plantFault } from './test/support/planted.ts';

const NODE_NEEDED = 24;

if (Number(process.versions.node.split('.')[0]) < NODE_NEEDED) {
  throw new Error(
    `Node ${NODE_NEEDED} or later is needed, this is ${process.versions.node}. "npm test" brings its own.`,
  );
}

export default defineConfig({
  plugins: process.env.PLANT ? [plantFault(process.env.PLANT)] : [],
  test: {
    // A transform kept on disk would hide a planted fault, or worse, plant it into honest runs.
    fsModuleCache: !process.env.PLANT,
    include: ['test/**/*.test.ts', 'packages/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    // A process for each file: files start servers, handle signals and count what is left open.
    pool: 'forks',
    maxWorkers: Math.min(4, Math.max(2, availableParallelism())),
    testTimeout: 30_000,
    hookTimeout: 60_000,
    teardownTimeout: 20_000,
  },
});
