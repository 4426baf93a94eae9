import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** The slowest files, slowest first. If a slow file started last, all other workers would wait for it at the end. */
const LONGEST = [
  'turns/chaos',
  'dashboard/pages',
  'turns/faults',
  'admin/admin',
  'admin/delivery',
  'operators/large-imports',
  'dashboard/dashboard',
  'live/faults',
  'process/silent-stop',
  'process/log-canary',
  'semantic/knowledge-vectors-workers',
  'semantic/understanding',
  'process/silent-start',
  'mongo/roll-back',
  'docs/reference',
  'semantic/knowledge-vectors-page',
  'dashboard/safety',
  'turns/order',
  'insights/projection',
  'operators/overview',
  'operators/long-work',
  'live/live',
  'live/presence',
  'assistant/slow-providers',
  'process/silent-workers',
  'process/silent-stores',
  'operators/setting-races',
  'conversations/unknown-outcome',
];

const rankOf = ({ moduleId }: TestSpecification): number => {
  const rank = LONGEST.findIndex((name) => moduleId.includes(`/test/${name}.`));
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
