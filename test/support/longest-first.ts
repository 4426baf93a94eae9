import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** The files that take longest, in this order. Started last, one of them would keep a single worker busy at the end. */
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

/** A clone keeps no record of how long each file took, so the first run of a machine could not know it. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return sorted.toSorted((one, other) => rankOf(one) - rankOf(other));
  }
}
