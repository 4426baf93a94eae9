import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { generatedFiles } from '../../scripts/generate/files.ts';

test.for(generatedFiles())('$file agrees with the API document', ({ file, text }) => {
  const current = readFileSync(join(import.meta.dirname, '../..', file), 'utf8');

  expect(current === text, 'run: node scripts/run.js generate').toBe(true);
});
