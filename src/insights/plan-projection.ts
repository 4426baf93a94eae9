import type { mongo } from 'mongoose';
import type { Entry } from '../conversations/conversation.ts';
import { resolutionsOf } from '../conversations/resolutions.ts';
import type { ReadConversation } from './changed-conversations.ts';
import { foldSession, type ProjectedConversation } from './conversation-search.ts';
import { countMessages } from './count-messages.ts';
import { hourOf, type Increment } from './figures.ts';
import { fitStep, type Lesson, LESSONS_AT_ONCE, readLessons } from './read-misses.ts';
import { searchWordsOf } from './search-words.ts';

/** At most this many words of a conversation are searchable. Only a conversation that is meant to harm has more. */
const MAX_TERMS = 5_000;

/** What the projection writes for one conversation. `isBehind`: it has more messages than were read. */
export type Plan = {
  conversation: ReadConversation;
  before: ProjectedConversation | null;
  entries: Entry[];
  statement: mongo.AnyBulkWriteOperation<ProjectedConversation>;
  increments: Increment[];
  lessons: Lesson[];
  isBehind: boolean;
};

/** The words that are not known yet, and how many words there are then. */
const newTermsOf = (entries: Entry[], { sessionId }: ReadConversation, known: string[]): string[] => {
  const all = new Set(known);
  const texts = entries.flatMap(({ messages }) =>
    messages.flatMap(({ role, content }) => (role === 'system' ? [] : [content])),
  );
  for (const text of known.length === 0 ? [sessionId, ...texts] : texts) {
    for (const word of searchWordsOf(text)) if (all.size < MAX_TERMS) all.add(word);
  }
  return [...all].slice(known.length);
};

/** The statement of a plan, which also stores the group of the conversation's last miss. */
export const withMiss = ({ statement }: Plan, missId: string | undefined): Plan['statement'] => {
  if (missId === undefined) return statement;
  if ('insertOne' in statement) return { insertOne: { document: { ...statement.insertOne.document, missId } } };
  if (!('updateOne' in statement)) return statement;
  const { filter, update } = statement.updateOne;
  const { $set, ...rest } = update as mongo.UpdateFilter<ProjectedConversation>; // planned above, never a pipeline
  return { updateOne: { filter, update: { ...rest, $set: { ...$set, missId } } } };
};

/** True if the projection has already read this state of the conversation. */
export const isCurrent = (read: ReadConversation, before: ProjectedConversation | null): boolean =>
  before !== null && before.seq >= read.seq && before.updatedAt.getTime() >= read.updatedAt.getTime();

/** Splits plans into groups that are written together, so that a group has few enough lessons for one step. */
export const splitByLessons = (plans: Plan[]): Plan[][] => {
  const groups: Plan[][] = [];
  let lessons = 0;
  for (const plan of plans) {
    const last = groups.at(-1);
    lessons += plan.lessons.length;
    if (last && lessons <= LESSONS_AT_ONCE) last.push(plan);
    else {
      groups.push([plan]);
      lessons = plan.lessons.length;
    }
  }
  return groups;
};

/** Plans the next step of a conversation. The statement changes nothing if another worker has taken this step. */
export const planProjection = (
  conversation: ReadConversation,
  before: ProjectedConversation | null,
  read: { entries: Entry[]; upTo: number },
): Plan => {
  const { entries, upTo } = fitStep(read);
  const { _id: key, conversationId, assistantId, sessionId, updatedAt } = conversation;
  const terms = newTermsOf(entries, conversation, before?.terms ?? []);
  const counted = before?.resolvedAt ?? null;
  const resolutions = resolutionsOf(conversation).filter((at) => counted === null || at > counted);
  const resolvedAt = resolutions.at(-1) ?? counted;
  const fields = { updatedAt, seq: upTo, resolvedAt };
  const statement: Plan['statement'] = before
    ? {
        updateOne: {
          filter: { _id: conversationId, seq: before.seq, resolvedAt: counted },
          update: { $set: fields, ...(terms.length > 0 && { $push: { terms: { $each: terms } } }) },
        },
      }
    : {
        insertOne: {
          document: { _id: conversationId, key, assistantId, session: foldSession(sessionId), terms, ...fields },
        },
      };
  return {
    conversation,
    before,
    entries,
    statement,
    increments: [
      ...countMessages(assistantId, entries),
      ...resolutions.map((at) => ({ assistantId, hour: hourOf(at), counts: { resolved: 1 } })),
    ],
    lessons: readLessons(entries),
    isBehind: upTo < conversation.seq,
  };
};
