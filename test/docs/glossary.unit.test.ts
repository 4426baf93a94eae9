import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

/** Words that this project once used in a meaning of its own. The glossary has the common term for each meaning. */
const PRIVATE_WORDS = [
  /\b(letLapse|giveBack|takenOut|newborn|underWay|doubtful|quieten|endUnsent|whenGone)\b/,
  /\b(under way|in hand|(in|of|from) (its|a session's) line|begins? anew|homed id|patience|resting)\b/i,
  /\b(is|are) away\b|\bspeaks? to\b|\bnobody['’]s\b|\/\*\* (So long|Of a|None that)\b/i,
];
/** The file with the language model's prompt. The test skips it, because the wording of a prompt must not change. */
const PROMPT = 'src/replies/engines/openai/engine.ts';

test('no replaced private word is left in the services', () => {
  const found = globSync('{src,workers}/**/*.ts', { cwd: ROOT })
    .filter((file) => file !== PROMPT)
    .flatMap((file) =>
      read(file)
        .split('\n')
        .flatMap((line, index) =>
          PRIVATE_WORDS.some((word) => word.test(line)) ? [`${file}:${index + 1}: ${line.trim()}`] : [],
        ),
    );

  expect(found).toEqual([]);
});
