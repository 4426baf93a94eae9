import type { TurnRef } from '../conversations/conversation.ts';
import type { RedisClient } from '../redis/redis.ts';
import type { Partitions } from '../redis/queue.ts';
import { TIMING } from '../process/time-limits.ts';

const MARK = `for _, key in ipairs(KEYS) do redis.call('SET', key, '1', 'PX', ARGV[1]) end`;

type Scripts = { parleyDelivered: (...args: (string | number)[]) => Promise<unknown> };

/** Records which replies have reached a caller. If Redis loses a record, the stored reply may be sent again. */
export type DeliveredReplies = {
  /**
   * Records a delivery. Call this after a response was written. Does not wait for Redis. The records of one tick are
   * written with one command per partition.
   */
  mark: (turn: TurnRef) => void;

  /** Returns the ids of those turns whose replies are recorded as delivered. Empty while Redis is unavailable. */
  find: (turns: TurnRef[]) => Promise<Set<string>>;
};

export const createDeliveredReplies = (redis: RedisClient, partitions: Partitions): DeliveredReplies => {
  redis.defineCommand('parleyDelivered', { lua: MARK });
  const scripts = redis as unknown as Scripts; // defined just above
  const keyOf = ({ key, turnId }: TurnRef) => `${partitions.tagOf(key)}:delivered:${turnId}`;

  let gathered: TurnRef[] = [];
  const flush = (): void => {
    const byPartition = Map.groupBy(gathered, ({ key }) => partitions.indexOf(key));
    gathered = [];
    for (const turns of byPartition.values()) {
      scripts.parleyDelivered(turns.length, ...turns.map(keyOf), TIMING.deliveredKeptMs).catch(() => undefined);
    }
  };

  return {
    mark: (turn) => {
      if (gathered.length === 0) setImmediate(flush);
      gathered.push(turn);
    },

    find: async (turns) => {
      const values = await Promise.all(turns.map((turn) => redis.get(keyOf(turn)).catch(() => null)));
      return new Set(turns.filter((_, index) => values[index] !== null).map(({ turnId }) => turnId));
    },
  };
};
