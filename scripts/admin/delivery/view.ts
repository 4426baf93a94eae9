import type { StoredDelivery } from '../../../src/events/delivery.ts';

/** A delivery as listed: what happened to it, without the texts. */
export const toListed = (delivery: StoredDelivery) => ({
  deliveryId: delivery._id,
  eventId: delivery.eventId,
  event: delivery.event,
  endpointId: delivery.endpointId,
  outcome: delivery.outcome,
  errorKind: delivery.errorKind ?? null,
  status: delivery.status ?? null,
  conversationId: delivery.conversationId,
  url: delivery.url,
  redelivery: delivery.redelivery,
  ms: delivery.timings?.total ?? null,
  happenedAt: delivery.happenedAt,
  createdAt: delivery.createdAt,
  endedAt: delivery.endedAt,
});

/** All that is kept of it. The claim's token is nobody's business. */
export const toWhole = (delivery: StoredDelivery) => ({
  ...toListed(delivery),
  timings: delivery.timings ?? null,
  remoteAddress: delivery.remoteAddress ?? null,
  tls: delivery.tls ?? null,
  requestHeaders: delivery.requestHeaders ?? {},
  body: delivery.body ?? null,
  responseHeaders: delivery.responseHeaders ?? {},
  responseBody: delivery.responseBody ?? null,
  truncated: delivery.truncated ?? false,
  expiresAt: delivery.expiresAt,
});
