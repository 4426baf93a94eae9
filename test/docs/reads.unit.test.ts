import { globSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

// A read that is whole in memory names its bound: a limit in the statement, or else a line here, in the order of the file.

const BOUND_BY: Record<string, string[]> = {
  'src/alerts/alert.ts': ['(open === true: the limit is in `sorted`'],
  'src/assistants/knowledge/semantic-state.ts': ['rows: running workers, 300 bytes each'],
  'src/assistants/knowledge/vectors.ts': [
    'stored: VECTORS_BATCH entries, 4 MB',
    'stored: INFO_BATCH entries, keys of 51 texts each, 2 MB',
  ],
  'src/conversations/changed-since.ts': [
    'pages: NUMBERS_AT_ONCE messages, 2 MB',
    'conversations: keys of a step, their ids',
  ],
  'src/conversations/history.ts': ['pages: from `first` to `upTo`, which callers bound'],
  'src/conversations/inbox.ts': ['conversations: the limit is in `optionsOf`', 'conversations: one for each status'],
  'src/conversations/outbox.ts': ['conversations: one count'],
  'src/events/claims.ts': ['deliveries: records of a batch'],
  'src/events/list.ts': [
    'deliveries: one for each failure',
    'deliveries: one for each hour of a day',
    'deliveries: one for each hour of a day and failure',
  ],
  'src/events/recoveries.ts': [
    'deliveries: one for each outcome of 50 recoveries',
    'deliveries: one event’s resends, 100 bytes each',
  ],
  'src/events/store.ts': [
    'deliveries: READ_AT_ONCE bodies, 3 MB',
    'deliveries: outcomes of given ids',
    'deliveries: ids of a batch of jobs',
  ],
  'src/events/tests-and-resends.ts': ['deliveries: one event’s resends'],
  'src/evaluation/question-sets.ts': ['cases: one count'],
  'src/inbox/records.ts': [
    'positions: conversations of a list, 100 bytes each',
    'positions: operators, 100 bytes each',
  ],
  'src/insights/conversation-search.ts': ['rows: the limit is in `limitsOf`'],
  'src/insights/figures.ts': ['positions: assistants of a step, 100 bytes each'],
  'src/insights/group-misses.ts': ['rows: LESSONS_AT_ONCE ids', 'misses: MAX_GROUPS, 20 KB each'],
  'src/insights/misses.ts': ['misses: MAX_GROUPS of a conversation, without vectors'],
  'src/insights/usage.ts': ['usage: one for each day or key'],
  'src/platform/mongo/mongo.ts': ['listCollections: the names of our collections'],
  'src/sources/passage-vectors.ts': [
    'passages: the limit is in `options`',
    'passages: rows of a batch, their assistant',
  ],
  'src/sources/passages.ts': [
    'sources: of them those whose index was replaced',
    'sources: STORED_MAX, 500 bytes each',
    'passages: READ_AT_ONCE passages, 1 MB',
    'tokens: passages of one search',
  ],
  'src/sources/run-pages.ts': [
    'passages: of one page, two numbers each',
    'proposals: of one page, their ids',
    'pages: links of one page, their addresses',
    'pages: AT_ONCE, without links',
    'passages: AT_ONCE ids',
  ],
  'src/sources/runs.ts': ['sources: STORED_MAX, 500 bytes each', 'passages: AT_ONCE ids'],
  'src/sources/versions.ts': ['sources: STORED_MAX, 500 bytes each'],
  'src/turns/allowances.ts': ['allowances: given places, one number each'],
};

/** The statement before each `.toArray()`, from the collection on. */
const readsIn = (text: string): string[] =>
  [...text.matchAll(/\.toArray\(\)/g)].map(({ index }) => {
    let depth = 0;
    let at = index - 1;
    for (; at > 0; at -= 1) {
      const char = text[at] ?? '';
      if (')]}'.includes(char)) depth += 1;
      else if ('([{'.includes(char)) depth -= 1;
      if (
        depth < 0 ||
        (depth === 0 && (/[;=,:?]/.test(char) || /(await|return|=>)\s$/.test(text.slice(at - 6, at + 1))))
      )
        break;
    }
    return text
      .slice(at + 1, index)
      .replace(/\s+/g, ' ')
      .trim();
  });

const isLimited = (read: string): boolean => /\.limit\(|\$limit:|\blimit\b/.test(read);
const nameOf = (read: string): string => /^\W*(\w+)/.exec(read)?.[1] ?? read;

test('every read that is whole in memory has a limit or another bound', () => {
  const found = globSync('{src,workers}/**/*.ts').flatMap((file) => {
    const reads = readsIn(readFileSync(file, 'utf8')).filter((read) => !isLimited(read));
    return reads.length === 0 ? [] : [[file, reads.map(nameOf)] as const];
  });

  const named = Object.entries(BOUND_BY).map(([file, bounds]) => [file, bounds.map((bound) => nameOf(bound))] as const);
  expect(Object.fromEntries(found)).toEqual(Object.fromEntries(named));
});
