import type { Own, Rule } from './evidence.ts';
import type { Delivery, Seen, StoredMessage } from './history.ts';

const PREVIEW = 500;

const firstOfContent = (text: string): string => [...text].slice(0, PREVIEW).join('');

const visitorTexts = (messages: StoredMessage[]): string[] =>
  messages.filter(({ role }) => role === 'user').map(({ content }) => firstOfContent(content));

const contentOf = ({ body }: Delivery): string =>
  (JSON.parse(body ?? '{}') as { payload?: { content?: string } }).payload?.content ?? '';

/**
 * Each stored visitor message has one `message.received`, and each conversation one `conversation.created`. Hostile
 * endpoints are removed before the last messages, so they do not count.
 */
const eachOnce: Rule = ({ endpoint, deliveries, stored, histories }) => {
  const byConversation = Map.groupBy(deliveries, ({ conversationId }) => conversationId);
  return [...histories.sessions].flatMap(([session, { assistantId, conversationId }]) => {
    const messages = stored.get(session);
    if (!messages || !conversationId || !endpoint.good || assistantId !== endpoint.assistantId) return [];
    const own = byConversation.get(conversationId) ?? [];
    const created = own.filter(({ event }) => event === 'conversation.created').length;
    const announced = own.filter(({ event }) => event === 'message.received').map(contentOf);
    const wanted = visitorTexts(messages);
    const missing = wanted.filter((text) => !announced.includes(text));
    return [
      ...(created === 1 ? [] : [{ session, what: `there are ${created} conversation.created` }]),
      ...missing.map((text) => ({ session, what: `"${text}" has no message.received` })),
      ...(announced.length > wanted.length
        ? [{ session, what: `${announced.length} message.received for ${wanted.length} messages` }]
        : []),
    ];
  });
};

type Sent = { message_id: string; content: string };

const sentIn = ({ body }: Delivery): Sent => (JSON.parse(body ?? '') as { payload: Sent }).payload;

/** Each stored message of the assistant, an operator or the system has one `message.sent`. */
const eachReplyOnce: Rule = ({ endpoint, deliveries, stored, histories }) => {
  const sent = deliveries.filter(({ event, body }) => event === 'message.sent' && body !== null);
  const byConversation = Map.groupBy(sent, ({ conversationId }) => conversationId);
  return [...histories.sessions].flatMap(([session, { assistantId, conversationId }]) => {
    const messages = stored.get(session);
    if (!messages || !conversationId || !endpoint.good || assistantId !== endpoint.assistantId) return [];
    const announced = Map.groupBy((byConversation.get(conversationId) ?? []).map(sentIn), ({ message_id: id }) => id);
    const wanted = messages.filter(({ role }) => role !== 'user');
    const known = new Set(wanted.map(({ messageId }) => messageId));
    return [
      ...wanted.flatMap(({ messageId, content }) => {
        const own = announced.get(messageId) ?? [];
        if (own.length !== 1) return [{ session, what: `"${content}" has ${own.length} message.sent` }];
        return own[0]?.content === content ? [] : [{ session, what: `"${content}" was sent with another text` }];
      }),
      ...[...announced.keys()].flatMap((id) =>
        known.has(id) ? [] : [{ session, what: `${id} was sent, but is not stored` }],
      ),
    ];
  });
};

const repliesInOrder: Rule = ({ endpoint, stored, histories, ...own }) => {
  const arrived = arrivalsOf('message.sent', { endpoint, ...own });
  return [...histories.sessions].flatMap(([session, { conversationId }]) => {
    const messages = stored.get(session);
    if (!messages || !conversationId) return [];
    const position = new Map(messages.map(({ messageId }, index) => [messageId, index]));
    const seen = (arrived.get(conversationId) ?? []).map(({ messageId }) => position.get(messageId ?? '') ?? -1);
    return seen.flatMap((at, index) =>
      index > 0 && at < (seen[index - 1] ?? 0)
        ? [{ session, what: `message.sent of "${messages[at]?.content}" arrived late` }]
        : [],
    );
  });
};

/** What arrived, by conversation. Events that ended `unknown` may arrive at any time, so they do not count. */
const arrivalsOf = (
  kind: string,
  { endpoint, deliveries }: Pick<Own, 'endpoint' | 'deliveries'>,
): Map<string, Seen[]> => {
  const unknown = new Set(deliveries.filter(({ outcome }) => outcome === 'unknown').map(({ eventId }) => eventId));
  return Map.groupBy(
    endpoint.seen.filter(({ event, eventId }) => event === kind && !unknown.has(eventId)),
    ({ conversationId }) => conversationId,
  );
};

const inOrder: Rule = ({ endpoint, deliveries, stored, histories }) => {
  const arrived = arrivalsOf('message.received', { endpoint, deliveries });
  return [...histories.sessions].flatMap(([session, { conversationId }]) => {
    const messages = stored.get(session);
    if (!messages || !conversationId) return [];
    const position = new Map(visitorTexts(messages).map((text, index) => [text, index]));
    const seen = (arrived.get(conversationId) ?? []).map(({ content }) => ({
      content,
      at: position.get(content ?? '') ?? -1,
    }));
    return seen.flatMap(({ content, at }, index) =>
      index > 0 && at < (seen[index - 1]?.at ?? 0)
        ? [{ session, what: `message.received of "${content}" arrived after that of "${seen[index - 1]?.content}"` }]
        : [],
    );
  });
};

/** Rules that compare the events of a conversation with its stored messages. */
export const ANNOUNCEMENTS: Record<string, Rule> = {
  'each event is announced once': eachOnce,
  'each reply is announced once': eachReplyOnce,
  'events keep their order': inOrder,
  'replies keep their order': repliesInOrder,
};
