import type { Redis } from 'ioredis';
import type { TurnRef } from '../conversations/conversation.ts';
import type { Partitions } from '../platform/redis.ts';
import { TIMING } from '../platform/timing.ts';

/** Which replies reached a caller. A record that Redis loses leads to a replay of the stored reply. */
export const createDeliveredReplies = (redis: Redis, partitions: Partitions) => {
  const keyOf = ({ key, turnId }: TurnRef) => `${partitions.tagOf(key)}:delivered:${turnId}`;

  return {
    /** Call it after a response was written. Not awaited. */
    mark: (turn: TurnRef): void => {
      redis.set(keyOf(turn), '1', 'PX', TIMING.deliveredKeptMs).catch(() => undefined);
    },

    /** Which of these turns' replies are recorded to have reached a caller. Empty while Redis is unavailable. */
    find: async (turns: TurnRef[]): Promise<Set<string>> => {
      const values = await Promise.all(turns.map((turn) => redis.get(keyOf(turn)).catch(() => null)));
      return new Set(turns.filter((_, index) => values[index] !== null).map(({ turnId }) => turnId));
    },
  };
};

export type DeliveredReplies = ReturnType<typeof createDeliveredReplies>;
