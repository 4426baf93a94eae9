import type { Outgoing } from '../composer/send.ts';
import { dayOf } from './lines.tsx';
import type { ConversationFacts, Message } from './thread.ts';

type Note = ConversationFacts['notes'][number];

/** What stands in the conversation, one below the other. */
export type Item =
  | { kind: 'day'; key: string; day: string }
  | { kind: 'new'; key: string }
  | { kind: 'message'; key: string; message: Message }
  | { kind: 'note'; key: string; note: Note }
  | { kind: 'outgoing'; key: string; outgoing: Outgoing };

type Timed = Extract<Item, { kind: 'message' | 'note' | 'outgoing' }>;

const timeOf = (item: Timed): string =>
  item.kind === 'message' ? item.message.createdAt : item.kind === 'note' ? item.note.createdAt : item.outgoing.at;

/** Messages keep the order of their numbers. Each note stands before the first message that is newer. */
const withNotes = (messages: readonly Message[], notes: readonly Note[], isWhole: boolean): Timed[] => {
  const start = isWhole ? '' : (messages[0]?.createdAt ?? '');
  const left = notes
    .filter(({ createdAt }) => createdAt >= start)
    .toSorted((a, b) => (a.createdAt < b.createdAt ? -1 : 1));
  const items: Timed[] = [];
  for (const message of messages) {
    while (left[0] && left[0].createdAt < message.createdAt) items.push(noteItem(left.shift() as Note));
    items.push({ kind: 'message', key: message.messageId, message });
  }
  return [...items, ...left.map(noteItem)];
};

const noteItem = (note: Note): Timed => ({ kind: 'note', key: note.noteId, note });

/** True if what is being sent stands in the conversation, although the answer to its sender is still on its way. */
const isStored = (
  { mode, text, sinceSeq }: Outgoing,
  { messages, notes }: Pick<Input, 'messages' | 'notes'>,
): boolean => {
  if (mode === 'note') return notes.some(({ content }) => content === text.trim());
  return messages.some(
    ({ role, seq, content }) => role === 'operator' && (seq ?? 0) > sinceSeq && content === text.trim(),
  );
};

type Input = {
  messages: readonly Message[];
  notes: readonly Note[];
  outgoing: readonly Outgoing[];
  /** False if older messages are not loaded yet. */
  isWhole: boolean;
  /** Messages above this number are new to this operator. Null if none are marked. */
  newAfter: number | null;
};

export const itemsOf = ({ messages, notes, outgoing, isWhole, newAfter }: Input): Item[] => {
  const timed: Timed[] = [
    ...withNotes(messages, notes, isWhole),
    ...outgoing
      .filter((one) => !isStored(one, { messages, notes }))
      .map((one, index): Timed => ({ kind: 'outgoing', key: `outgoing ${index}`, outgoing: one })),
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
