import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** The slowest files, slowest first. If a slow file started last, all other workers would wait for it at the end. */
const LONGEST = [
  'turns/chaos',
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

/** Starts the files of `LONGEST` first. The list is needed because a new clone has no record of durations. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return sorted.toSorted((one, other) => rankOf(one) - rankOf(other));
  }
}
