import { useMemo } from 'react';
import { isFinal } from '../../deliveries/outcome.tsx';
import { useRead } from '../../../query.ts';
import type { ConversationEvents } from '../../../types.ts';
import type { MessageEvent } from './events.tsx';
import { eventsPath } from './thread.ts';

type Events = { bySeq: ReadonlyMap<number, readonly MessageEvent[]>; others: readonly MessageEvent[] };

/** The events of a conversation: by the number of their message, and those without a message. */
export const useEvents = (conversationId: string): Events => {
  const read = useRead<ConversationEvents>(eventsPath(conversationId), {
    keep: true,
    every: (answer) => (answer?.events.some(isUnderWay) ? 2_500 : false),
  });
  return useMemo(() => {
    const events = read.data?.events.filter(({ deliveries }) => deliveries.length > 0) ?? [];
    const withMessage = events.filter(({ seq }) => seq !== null);
    return {
      bySeq: Map.groupBy(withMessage, ({ seq }) => seq ?? 0),
      others: events.filter(({ seq }) => seq === null),
    };
  }, [read.data]);
};

const isUnderWay = ({ deliveries }: MessageEvent): boolean => deliveries.some(({ outcome }) => !isFinal(outcome));
