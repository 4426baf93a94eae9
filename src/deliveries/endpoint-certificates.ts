import type { mongo } from 'mongoose';
import { EVENT_KINDS } from '../webhooks/event.ts';
import type { StoredDelivery } from './delivery.ts';

const DAY_MS = 86_400_000;

/** The latest deliveries that are looked at. Those that failed before TLS say nothing about the certificate. */
const LATEST = 20;

/** When the certificate that an endpoint showed last expires. Null if its latest deliveries used no TLS. */
export const createCertificateExpiry =
  (deliveries: mongo.Collection<StoredDelivery>) =>
  async ({ assistantId, endpointId }: { assistantId: string; endpointId: string }): Promise<Date | null> => {
    const latest = await deliveries
      .find({ assistantId, endpointId, event: { $in: EVENT_KINDS } }, { projection: { tls: 1, createdAt: 1 } })
      .sort({ createdAt: -1, _id: -1 })
      .limit(LATEST)
      .toArray();
    const last = latest.find(({ tls }) => tls?.daysToExpiry != null);
    const days = last?.tls?.daysToExpiry;
    return last && days != null ? new Date(last.createdAt.getTime() + days * DAY_MS) : null;
  };
