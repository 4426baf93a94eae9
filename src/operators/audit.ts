import { type Connection, Schema } from 'mongoose';
import { serverDate } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';

export const AUDIT_DAYS = 365;
const DAY_S = 86_400;

/** Somebody signed in, a program with an operator token, or the admin command on the service's own machine. */
export const ACTORS = ['operator', 'token', 'command'] as const;
export type Actor = (typeof ACTORS)[number];

/** Who did what, when, and on what. Ids and names; never a secret, never what a visitor or an operator wrote. */
export type AuditLine = {
  auditId: string;
  at: Date;
  actor: Actor;
  /** The operator's id, or the token's; of the command, zeros. */
  operatorId: string;
  /** As it was then: the line is to be read when the operator is long gone. Of a token its name. */
  email: string;
  action: string;
  target: string | null;
  details: Record<string, string | number | boolean | null>;
  requestId: string;
};

/** Those written before there were tokens do not say what acted. */
type StoredLine = Omit<AuditLine, 'auditId' | 'actor'> & { _id: string; actor?: Actor };

const auditSchema = new Schema<StoredLine>(
  {
    _id: { type: String, required: true },
    at: { type: Date, required: true },
    actor: { type: String },
    operatorId: { type: String, required: true },
    email: { type: String, required: true },
    action: { type: String, required: true },
    target: { type: String, default: null },
    details: { type: Schema.Types.Mixed, default: {} },
    requestId: { type: String, required: true },
  },
  { collection: 'audit', versionKey: false, strictQuery: 'throw', minimize: false },
);
auditSchema.index({ at: 1 }, { expireAfterSeconds: AUDIT_DAYS * DAY_S });
auditSchema.index({ at: -1, _id: -1 });
auditSchema.index({ operatorId: 1, at: -1, _id: -1 });
auditSchema.index({ target: 1, at: -1, _id: -1 });

export type AuditFilter = {
  operatorId?: string;
  action?: string;
  target?: string;
  after?: { at: Date; id: string };
  limit: number;
};

/** Of a text in the trail, which is kept for a year; ids, hosts and lists of events are shorter. */
const TEXT_MAX = 500;

const short = (text: string): string => text.slice(0, TEXT_MAX).toWellFormed();

/** No request says how much of it is kept and logged. */
export const boundedLine = <Line extends Pick<AuditLine, 'target' | 'details'>>(line: Line): Line => ({
  ...line,
  target: line.target === null ? null : short(line.target),
  details: Object.fromEntries(
    Object.entries(line.details).map(([name, value]) => [name, typeof value === 'string' ? short(value) : value]),
  ),
});

export const createAudit = (connection: Connection) => {
  const lines = connection.model<StoredLine>('AuditLine', auditSchema);
  return {
    models: [lines],

    record: async (line: Omit<AuditLine, 'auditId' | 'at'>): Promise<void> => {
      await lines.create({ _id: newId(), at: serverDate(), ...line });
    },

    /** Newest first; `next` is where the following page begins. */
    list: async ({ after, limit, ...exact }: AuditFilter) => {
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
  };
};

export type Audit = ReturnType<typeof createAudit>;
