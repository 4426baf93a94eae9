import { useMemo } from 'react';
import { isFinal } from '../../deliveries/outcome.tsx';
import { useRead } from '../../../query.ts';
import type { ConversationEvents } from '../../../types.ts';
import type { MessageEvent } from './events.tsx';
import { eventsPath } from './thread.ts';

const NONE: ReadonlyMap<number, readonly MessageEvent[]> = new Map();

/** The events of a conversation by the number of their message. */
export const useEvents = (conversationId: string): ReadonlyMap<number, readonly MessageEvent[]> => {
  const read = useRead<ConversationEvents>(eventsPath(conversationId), {
    keep: true,
    every: (answer) => (answer?.events.some(isUnderWay) ? 2_500 : false),
  });
  return useMemo(() => {
    const events = read.data?.events.filter(({ deliveries }) => deliveries.length > 0) ?? [];
    if (events.length === 0) return NONE;
    return Map.groupBy(
      events.filter((one) => one.seq !== null),
      ({ seq: own }) => own ?? 0,
    );
  }, [read.data]);
};

const isUnderWay = ({ deliveries }: MessageEvent): boolean => deliveries.some(({ outcome }) => !isFinal(outcome));
