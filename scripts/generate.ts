import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { generatedFiles } from './generate/files.ts';

for (const { file, text } of generatedFiles()) {
  writeFileSync(join(import.meta.dirname, '..', file), text);
  console.log(file);
}
