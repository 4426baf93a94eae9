import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** The slowest files, slowest first. If a slow file started last, all other workers would wait for it at the end. */
const LONGEST = [
  'dashboard/pages',
  'dashboard/inbox',
  'dashboard/settings',
  'dashboard/safety',
  'docs/reference',
  'dashboard/dashboard',
  'sources/kills',
  'turns/faults',
  'operators/plain-words',
  'turns/chaos',
  'setup/quickstart',
  'turns/rolling-restart',
  'insights/projection',
  'operators/sign-in-limits',
  'assistant/many-passages',
  'assistant/large-knowledge',
  'token-vectors',
  'redis/partitions',
  'deliveries/large-outboxes',
  'live/live',
  'conversations/take-by',
  'embedder',
  'operators/large-lists',
  'turns/overload',
  'insights/misses',
  'operators/setting-races',
  'operators/costly-reads',
  'operators/long-work',
  'chat/dedupe-model',
  'process/silent-workers',
  'assistant/slow-providers',
  'turns/order',
  'process/skewed-clocks',
  'process/silent-stop',
  'process/event-loop-stall',
  'operators/large-imports',
  'live/faults',
  'process/loops',
  'process/silent-stores',
  'semantic/knowledge-vectors-workers',
  'process/log-canary',
  'live/presence',
  'mongo/roll-back',
  'conversations/unknown-outcome',
  'admin/admin',
  'operators/overview',
  'setup/dev',
  'process/silent-start',
  'operators/inbox-records',
  'http/session-floods',
  'deliveries/send-hostile',
  'sources/runs',
  'sources/hostile-sites',
  'operators/agent-assistants',
  'operators/inbox',
  'conversations/states',
  'operators/operators',
  'docs/openapi',
  'assistant/passages',
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
