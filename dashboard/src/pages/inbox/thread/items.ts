import type { Outgoing } from '../composer/send.ts';
import { dayOf } from './lines.tsx';
import type { Message } from './thread.ts';

/** What stands in the conversation, one below the other. */
export type Item =
  | { kind: 'day'; key: string; day: string }
  | { kind: 'new'; key: string }
  | { kind: 'message'; key: string; message: Message }
  | { kind: 'outgoing'; key: string; outgoing: Outgoing };

type Timed = Extract<Item, { kind: 'message' | 'outgoing' }>;

const timeOf = (item: Timed): string => (item.kind === 'message' ? item.message.createdAt : item.outgoing.at);

type Input = {
  messages: readonly Message[];
  outgoing: readonly Outgoing[];
  /** Messages above this number are new to this operator. Null if none are marked. */
  newAfter: number | null;
};

export const itemsOf = ({ messages, outgoing, newAfter }: Input): Item[] => {
  const timed: Timed[] = [
    ...messages.map((message): Timed => ({ kind: 'message', key: message.messageId, message })),
    ...outgoing.map((one, index): Timed => ({ kind: 'outgoing', key: `outgoing ${index}`, outgoing: one })),
  ];
  const items: Item[] = [];
  let day = '';
  let marked = newAfter === null;
  for (const item of timed) {
    const own = dayOf(timeOf(item));
    if (own !== day) items.push({ kind: 'day', key: `day ${own}`, day: own });
    day = own;
    if (!marked && item.kind === 'message' && (item.message.seq ?? Number.POSITIVE_INFINITY) > (newAfter ?? 0)) {
      items.push({ kind: 'new', key: 'new' });
      marked = true;
    }
    items.push(item);
  }
  return items;
};
