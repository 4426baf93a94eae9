import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** The slowest files, slowest first. If a slow file started last, all other workers would wait for it at the end. */
const LONGEST = [
  'turns/chaos',
  'dashboard/pages',
  'turns/faults',
  'admin/admin',
  'admin/delivery',
  'hostile/large-imports',
  'dashboard/dashboard',
  'live/faults',
  'hostile/silent-stop',
  'hostile/log-canary',
  'semantic/knowledge-vectors-workers',
  'semantic/understanding',
  'hostile/silent-start',
  'hostile/roll-back',
  'docs/reference',
  'semantic/knowledge-vectors-page',
  'dashboard/safety',
  'turns/order',
  'insights/projection',
  'operators/overview',
  'hostile/long-work',
  'live/live',
  'live/presence',
  'hostile/slow-providers',
  'hostile/silent-workers',
  'hostile/silent-stores',
  'hostile/setting-races',
  'conversations/unknown-outcome',
];

const rankOf = ({ moduleId }: TestSpecification): number => {
  const rank = LONGEST.findIndex((name) => moduleId.endsWith(`/test/${name}.test.ts`));
  return rank === -1 ? LONGEST.length : rank;
};

/**
 * Starts the files of `LONGEST` first in each project. The list is needed because a new clone has no record of durations.
 * The projects stay apart, because a process that is shared by files ends when a file of another project is next.
 */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return sorted.toSorted(
      (one, other) => one.project.name.localeCompare(other.project.name) || rankOf(one) - rankOf(other),
    );
  }
}
