import { test } from 'vitest';

/**
 * Files that import this run in both suites: in their shortest form every day, and in a large one in `npm run test:long`
 * (the project `long` of vitest.config.ts).
 */
export const isLong = process.env['TEST_SIZE'] === 'long';

export const sized = <Value>({ everyday, long }: { everyday: Value; long: Value }): Value => (isLong ? long : everyday);

/** A test of the long suite only. */
export const longTest: (name: string, run: () => Promise<void>) => void = isLong ? test : () => undefined;
