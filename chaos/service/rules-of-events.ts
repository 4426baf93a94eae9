import { isFinal } from '../../src/events/delivery.ts';
import type { EventsEvidence, Rule } from './evidence.ts';
import type { Violation } from './history.ts';
import { ANNOUNCEMENTS } from './rules-of-announcements.ts';

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

const RULES: Record<string, Rule> = {
  'no event arrives twice': notTwice,
  'each delivery has an outcome': oneOutcome,
  'outcomes are true': trueOutcome,
  'good endpoints are unharmed': unharmed,
  ...ANNOUNCEMENTS,
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
