import { type QueryClient, useQuery } from '@tanstack/react-query';
import { at, call, withQuery } from '../../../api.ts';
import { isProblem } from '../../../problem.ts';
import type { Conversation } from '../../../types.ts';

export type Message = Conversation['messages'][number];
export type ConversationFacts = Omit<Conversation, 'messages' | 'hasMore' | 'nextCursor'>;
/** A conversation and its newest messages. All messages with a number above `from` are loaded. */
export type Thread = { facts: ConversationFacts; messages: Message[]; from: number };

/** So many numbers are loaded at a time. A number has at most two messages. */
const NUMBERS = 50;
const LIMIT = 200;
/** Above every number: such a read gives the conversation and its pending messages. */
const NO_NUMBERS = 999_999_999;

export const threadKey = (conversationId: string) => [at`/conversations/${conversationId}`, 'thread'] as const;

export const eventsPath = (conversationId: string) => at`/conversations/${conversationId}/events`;

/** Reads again what is shown of a conversation. */
export const refreshThread = (client: QueryClient, conversationId: string): Promise<unknown> => {
  const events = client.invalidateQueries({ queryKey: [eventsPath(conversationId)] });
  return Promise.all([client.invalidateQueries({ queryKey: threadKey(conversationId) }), events]);
};

const read = (conversationId: string, query: Record<string, number>, signal?: AbortSignal) =>
  call<Conversation>('GET', withQuery(at`/conversations/${conversationId}`, query), signal ? { signal } : {});

const factsOf = ({ messages: _messages, hasMore: _more, nextCursor: _next, ...facts }: Conversation) => facts;

/** Reads what is newer than `afterSeq`. The pending messages are on the last page. */
const readNewer = async (conversationId: string, afterSeq: number, signal?: AbortSignal): Promise<Thread> => {
  const messages: Message[] = [];
  for (let from = afterSeq; ; ) {
    const page = await read(conversationId, { afterSeq: from, limit: LIMIT }, signal);
    messages.push(...page.messages);
    const reached = page.messages.findLast(({ seq }) => seq !== null)?.seq ?? from;
    if (!page.hasMore || reached === from) return { facts: factsOf(page), messages, from: afterSeq };
    // A number is read again, because the page may have ended between its two messages.
    from = Math.max(reached - 1, from);
    while (messages.at(-1)?.seq === reached) messages.pop();
  }
};

const readNewest = async (conversationId: string, signal?: AbortSignal): Promise<Thread> => {
  const { seq } = await read(conversationId, { afterSeq: NO_NUMBERS, limit: 1 }, signal);
  return readNewer(conversationId, Math.max(0, seq - NUMBERS), signal);
};

const numbered = (messages: readonly Message[]): Message[] => messages.filter(({ seq }) => seq !== null);
const lastNumberOf = ({ messages, from }: Thread): number => numbered(messages).at(-1)?.seq ?? from;

/** Final messages never change, so only newer ones are read. */
const refresh = async (conversationId: string, known: Thread, signal?: AbortSignal): Promise<Thread> => {
  const newer = await readNewer(conversationId, lastNumberOf(known), signal);
  return { ...newer, from: known.from, messages: [...numbered(known.messages), ...newer.messages] };
};

export const useThread = (client: QueryClient, conversationId: string) =>
  useQuery({
    queryKey: threadKey(conversationId),
    queryFn: ({ signal }) => {
      const known = client.getQueryData<Thread>(threadKey(conversationId));
      return known ? refresh(conversationId, known, signal) : readNewest(conversationId, signal);
    },
    staleTime: 0,
    retry: (count, problem) => count < 2 && !isProblem(problem, 404),
  });

/** Loads the messages before the first loaded one. */
export const loadOlder = async (client: QueryClient, conversationId: string): Promise<void> => {
  const known = client.getQueryData<Thread>(threadKey(conversationId));
  if (!known || known.from === 0) return;
  const from = Math.max(0, known.from - NUMBERS);
  const page = await read(conversationId, { afterSeq: from, limit: LIMIT });
  const older = page.messages.filter(({ seq }) => seq !== null && seq <= known.from);
  client.setQueryData<Thread>(threadKey(conversationId), (now) =>
    now?.from === known.from ? { ...now, from, messages: [...older, ...now.messages] } : now,
  );
};
