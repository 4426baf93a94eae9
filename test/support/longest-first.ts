import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** The slowest files, slowest first. If a slow file started last, all other workers would wait for it at the end. */
const LONGEST = [
  'dashboard/pages',
  'assistant/slow-providers',
  'setup/quickstart',
  'dashboard/inbox',
  'dashboard/dashboard',
  'process/skewed-clocks',
  'live/live',
  'process/canaries',
  'insights/projection',
  'dashboard/safety',
  'conversations/take-by',
  'process/silent-stores',
  'turns/order',
  'turns/faults',
  'mongo/roll-back',
  'semantic/knowledge-vectors-workers',
  'sources/kills',
  'turns/chaos',
  'turns/rolling-restart',
  'redis/partitions',
  'mongo/statements',
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
