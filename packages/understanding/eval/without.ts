import { readFileSync } from 'node:fs';
import { registerHooks, stripTypeScriptTypes } from 'node:module';

/**
 * The changes that disable each part of the engine. This file is preloaded with `node --import`, and disables the part
 * that is named in the environment variable `WITHOUT`.
 */
const PARTS: Record<string, [file: string, change: (source: string) => string][]> = {
  'words of trade': [['concepts-trade.json', () => '{}']],
  'words of services': [['concepts-service.json', () => '{}']],
  'words of software': [['concepts-software.json', () => '{}']],
  'all concepts': [
    [
      'concepts.ts',
      () =>
        'export const relatedTo = () => []; export const conceptOf = () => null; export const phraseConcept = () => null; export const misspeltConcept = () => null;',
    ],
  ],
  'what goes with what': [['concepts.ts', (source) => source.replace('RELATED[concept] ?? []', '[]')]],
  'concepts of misspelt words': [
    ['concepts.ts', (source) => source.replace('if (word.length < SHORTEST_FUZZY) return null;', 'return null;')],
  ],
  'filler words': [['fillers.json', () => '{}']],
};

export const PART_NAMES = Object.keys(PARTS);

const without = process.env['WITHOUT'];
if (without) {
  const changes = PARTS[without] ?? [];
  registerHooks({
    load: (url, context, next) => {
      const loaded = next(url, context);
      const [, change] = changes.find(([file]) => url.endsWith(`/retrieval/${file}`)) ?? [];
      if (!change) return loaded;
      const before = readFileSync(new URL(url), 'utf8');
      const source = change(before);
      if (source === before) throw new Error(`${url} has changed: nothing was taken out of it`);
      if (url.endsWith('.json')) return { ...loaded, source };
      return { ...loaded, source: stripTypeScriptTypes(source), format: 'module' };
    },
  });
}
