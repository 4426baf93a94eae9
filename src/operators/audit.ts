import type { Connection } from 'mongoose';
import { inBatches } from '../platform/mongo/batches.ts';
import { serverDate } from '../platform/process/clock.ts';
import { newId } from '../platform/process/ids.ts';
import { collectionOf, type Indexed, schemaOf } from '../platform/mongo/mongo.ts';

export const AUDIT_DAYS = 365;
const DAY_S = 86_400;

/** Who can act: a signed-in operator, a program with an operator token, or the admin command on the server. */
export const ACTORS = ['operator', 'token', 'command'] as const;
type Actor = (typeof ACTORS)[number];

/** Records who did what to which object, and when. A line contains ids and names, but never a secret or a message. */
export type AuditLine = {
  auditId: string;
  at: Date;
  actor: Actor;
  /** The id of the operator or token. All digits are zero for the admin command. */
  operatorId: string;
  /**
   * The operator's email at that time, so that the line stays readable after the operator is deleted. For a token, the
   * token's name.
   */
  email: string;
  action: string;
  target: string | null;
  details: Record<string, string | number | boolean | null>;
  requestId: string;
};

/** Lines that were written before operator tokens existed have no actor. */
type StoredLine = Omit<AuditLine, 'auditId' | 'actor'> & { _id: string; actor?: Actor };

const auditSchema = schemaOf<StoredLine>('audit');
auditSchema.index({ at: 1 }, { expireAfterSeconds: AUDIT_DAYS * DAY_S });
auditSchema.index({ at: -1, _id: -1 });
auditSchema.index({ operatorId: 1, at: -1, _id: -1 });
auditSchema.index({ target: 1, at: -1, _id: -1 });
auditSchema.index({ action: 1, at: -1, _id: -1 });

type AuditFilter = {
  operatorId?: string;
  action?: string;
  target?: string;
  after?: { at: Date; id: string };
  limit: number;
};

/**
 * The maximum number of characters of one text in a line. The audit trail is kept for a year, so long texts from requests
 * are cut. Ids, hosts and event lists are shorter than this limit.
 */
const TEXT_MAX = 500;

const short = (text: string): string => text.slice(0, TEXT_MAX).toWellFormed();

/** Limits how much one request can add to the audit trail. */
export const boundedLine = <Line extends Pick<AuditLine, 'target' | 'details'>>(line: Line): Line => ({
  ...line,
  target: line.target === null ? null : short(line.target),
  details: Object.fromEntries(
    Object.entries(line.details).map(([name, value]) => [name, typeof value === 'string' ? short(value) : value]),
  ),
});

export type Audit = {
  models: Indexed[];
  record: (line: Omit<AuditLine, 'auditId' | 'at'>) => Promise<void>;

  /** Lists lines, newest first. `next` is the cursor of the following page. */
  list: (filter: AuditFilter) => Promise<{ lines: AuditLine[]; next: { at: Date; id: string } | null }>;

  /** Removes the tags of an erased conversation: people may have written anything into them. */
  eraseConversation: (conversationId: string) => Promise<void>;
};

export const createAudit = (connection: Connection): Audit => {
  const lines = connection.model<StoredLine>('AuditLine', auditSchema);
  return {
    models: [lines],

    record: async (line) => {
      await collectionOf(lines).insertOne({ _id: newId(), at: serverDate(), ...line });
    },

    list: async ({ after, limit, ...exact }) => {
      const rows = await lines
        .find({
          ...exact,
          ...(after && { $or: [{ at: { $lt: after.at } }, { at: after.at, _id: { $lt: after.id } }] }),
        })
        .sort({ at: -1, _id: -1 })
        .limit(limit + 1)
        .lean();
      const page = rows.slice(0, limit);
      const last = rows.length > limit ? page.at(-1) : undefined;
      return {
        lines: page.map(({ _id, actor = 'operator', ...line }): AuditLine => ({ auditId: _id, actor, ...line })),
        next: last ? { at: last.at, id: last._id } : null,
      };
    },

    eraseConversation: async (conversationId) => {
      const collection = collectionOf(lines);
      await inBatches({ collection, filter: { target: conversationId } }, (some) =>
        collection.updateMany({ ...some, 'details.tag': { $exists: true } }, { $unset: { 'details.tag': '' } }),
      );
    },
  };
};
