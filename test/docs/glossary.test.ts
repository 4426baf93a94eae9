import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseAst } from 'vite';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');
const DOMAIN = 'src/{assistants,webhooks,conversations,deliveries,turns,operators,inbox,language}/**/*.ts';

/** The first cells of all tables below headings that `wanted` accepts. */
const termsUnder = (wanted: (heading: string) => boolean): string[] =>
  read('docs/glossary.md')
    .split(/^## /m)
    .filter((section) => wanted(section.split('\n', 1)[0] ?? ''))
    .flatMap((section) => [...section.matchAll(/^\| ([^|]+) \|/gm)].map(([, cell = '']) => cell));

const singular = (word: string): string =>
  word
    .toLowerCase()
    .replace(/ies$/, 'y')
    .replace(/([^s])s$/, '$1');
const wordsOf = (text: string): string[] => (text.match(/[A-Z]+(?![a-z])|[A-Z]?[a-z]+/g) ?? []).map(singular);

const exportedTypes = (file: string): string[] =>
  parseAst(read(file), { lang: 'ts' }).body.flatMap((node) => {
    if (node.type !== 'ExportNamedDeclaration') return [];
    const declaration = node.declaration as { type: string; id?: { name?: string } | null } | null;
    const isType = /^(TSTypeAlias|TSInterface|Class)Declaration$/.test(declaration?.type ?? '');
    return isType && declaration?.id?.name !== undefined ? [declaration.id.name] : [];
  });

test('every exported type of the domain is named in words of the glossary', () => {
  const known = new Set(termsUnder(() => true).flatMap(wordsOf));
  const unknown = globSync(DOMAIN, { cwd: ROOT })
    .flatMap((file) => exportedTypes(file).map((name) => ({ name, words: wordsOf(name) })))
    .flatMap(({ name, words }) => words.filter((word) => !known.has(word)).map((word) => `${word} (${name})`));

  expect([...new Set(unknown)].toSorted()).toEqual([]);
});

/** Words that this project once used in a meaning of its own. The glossary has the common term for each meaning. */
const PRIVATE_WORDS = [
  /\b(letLapse|giveBack|takenOut|newborn|underWay|doubtful|quieten|endUnsent|whenGone)\b/,
  /\b(under way|in hand|(in|of|from) (its|a session's) line|begins? anew|homed id|patience|resting)\b/i,
  /\b(is|are) away\b|\bspeaks? to\b|\bnobody['’]s\b|\/\*\* (So long|Of a|None that)\b/i,
];
/** The file with the language model's prompt. The test skips it, because the wording of a prompt must not change. */
const PROMPT = 'workers/reply/engines/openai/prompt.ts';

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
