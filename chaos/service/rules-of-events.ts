import { isFinal } from '../../src/deliveries/delivery.ts';
import type { Evidence } from './evidence.ts';
import type { Delivery, Histories, Seen, StoredMessage, Violation } from './history.ts';

const PREVIEW = 500;

export type Endpoint = { endpointId: string; assistantId: string; good: boolean; seen: Seen[] };
export type EventsEvidence = Pick<Evidence, 'stored' | 'deliveries'> & { endpoints: Endpoint[]; histories: Histories };

type Own = {
  endpoint: Endpoint;
  deliveries: Delivery[];
  sessionOf: (conversationId: string) => string;
} & EventsEvidence;
type Rule = (own: Own) => { session: string; what: string }[];

const firstOfContent = (text: string): string => [...text].slice(0, PREVIEW).join('');

const notTwice: Rule = ({ endpoint, sessionOf }) =>
  [...Map.groupBy(endpoint.seen, ({ eventId }) => eventId).values()].flatMap(([first, ...more]) =>
    first && more.length > 0
      ? [
          {
            session: sessionOf(first.conversationId),
            what: `${first.event} ${first.eventId} arrived ${more.length + 1} times`,
          },
        ]
      : [],
  );

const oneOutcome: Rule = ({ deliveries, sessionOf }) =>
  deliveries.flatMap(({ eventId, event, outcome, conversationId }) =>
    isFinal(outcome) ? [] : [{ session: sessionOf(conversationId), what: `${event} ${eventId} is still ${outcome}` }],
  );

const trueOutcome: Rule = ({ endpoint, deliveries, sessionOf }) => {
  const arrived = new Set(endpoint.seen.map(({ eventId }) => eventId));
  return deliveries.flatMap(({ eventId, event, outcome, errorKind, conversationId }) => {
    const wrong = arrived.has(eventId) ? outcome === 'not_sent' : outcome === 'delivered' || outcome === 'rejected';
    const what = `${event} ${eventId} is ${outcome} (${errorKind}) and ${arrived.has(eventId) ? 'arrived' : 'did not arrive'}`;
    return wrong ? [{ session: sessionOf(conversationId), what }] : [];
  });
};

/** A good endpoint gets every event: nothing ends as not sent or rejected. */
const unharmed: Rule = ({ endpoint, deliveries, sessionOf }) =>
  deliveries.flatMap(({ eventId, event, outcome, errorKind, conversationId }) =>
    endpoint.good && (outcome === 'not_sent' || outcome === 'rejected') && errorKind !== 'erased'
      ? [{ session: sessionOf(conversationId), what: `${event} ${eventId} ended ${outcome} (${errorKind})` }]
      : [],
  );

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

/** Events that ended `unknown` may arrive at any time, so they do not count. */
const inOrder: Rule = ({ endpoint, deliveries, stored, histories }) => {
  const unknown = new Set(deliveries.filter(({ outcome }) => outcome === 'unknown').map(({ eventId }) => eventId));
  const arrived = Map.groupBy(
    endpoint.seen.filter(({ event, eventId }) => event === 'message.received' && !unknown.has(eventId)),
    ({ conversationId }) => conversationId,
  );
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

const RULES: Record<string, Rule> = {
  'no event arrives twice': notTwice,
  'each delivery has an outcome': oneOutcome,
  'outcomes are true': trueOutcome,
  'good endpoints are unharmed': unharmed,
  'each event is announced once': eachOnce,
  'events keep their order': inOrder,
};

export const EVENT_RULES = Object.keys(RULES);

/** Compares what receivers saw with the records of deliveries and with the stored messages. */
export const judgeEvents = (evidence: EventsEvidence): Violation[] => {
  const sessions = new Map(
    [...evidence.histories.sessions].map(([name, { conversationId }]) => [conversationId, name]),
  );
  const sessionOf = (conversationId: string): string => sessions.get(conversationId) ?? `(${conversationId})`;
  return evidence.endpoints.flatMap((endpoint) => {
    const deliveries = evidence.deliveries.filter(({ endpointId }) => endpointId === endpoint.endpointId);
    return Object.entries(RULES).flatMap(([rule, judge]) =>
      judge({ ...evidence, endpoint, deliveries, sessionOf }).map((found) => ({ rule, ...found })),
    );
  });
};
