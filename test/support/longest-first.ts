import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** The slowest files, slowest first. If one started last, a single worker would be busy at the end. */
const LONGEST = [
  'dashboard/pages',
  'hostile/large-imports',
  'hostile/log-canary',
  'turns/faults',
  'dashboard/dashboard',
  'hostile/silent-stop',
  'semantic/knowledge-vectors-workers',
  'hostile/slow-providers',
  'hostile/silent-workers',
  'admin/admin',
  'admin/delivery',
  'semantic/understanding',
  'hostile/silent-start',
  'hostile/roll-back',
  'hostile/silent-stores',
  'semantic/knowledge-vectors-page',
  'conversations/unknown-outcome',
  'dashboard/safety',
];

const rankOf = ({ moduleId }: TestSpecification): number => {
  const rank = LONGEST.findIndex((name) => moduleId.endsWith(`/test/${name}.test.ts`));
  return rank === -1 ? LONGEST.length : rank;
};

/** A new clone has no record of durations, so the slowest files are listed here. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return sorted.toSorted((one, other) => rankOf(one) - rankOf(other));
  }
}
