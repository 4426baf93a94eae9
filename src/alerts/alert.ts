import { type Connection, type Model, type mongo, Schema } from 'mongoose';
import { leaseIn } from '../mongo/batches.ts';
import { isDuplicateKey } from '../mongo/failures.ts';
import { collectionOf, type Indexed } from '../mongo/mongo.ts';
import { serverDate } from '../process/clock.ts';
import { notFound } from '../process/errors.ts';
import { newId } from '../process/ids.ts';

/** What needs somebody's attention. docs/operating.md says for each what to look at and do. */
export const ALERT_KINDS = [
  'endpoint_failing',
  'endpoint_paused',
  'certificate_expires',
  'events_late',
  'person_waits',
  'provider_failing',
  'queue_stuck',
  'sweeps_stopped',
  'redis_unavailable',
  'redis_full',
  'disk_full',
] as const;
export type AlertKind = (typeof ALERT_KINDS)[number];

export type AlertChannel = 'webhook' | 'email';

export type AlertDetails = Record<string, string | number | Date | null>;

/** Something that is true now. `target`: an endpoint, a queue or an assistant; with the kind it names one alert. */
export type Condition = { kind: AlertKind; target: string; assistantId: string | null; details: AlertDetails };

/** A condition from its beginning to its end. */
export type StoredAlert = Condition & {
  _id: string;
  key: string;
  beganAt: Date;
  seenAt: Date;
  endedAt: Date | null;
  /** Only while it lasts, for the indexes. */
  open?: true;
  acknowledged: { at: Date; operatorId: string; by: string } | null;
  /** The channels that have not been told the latest change. Missing if all have. */
  untold?: AlertChannel[];
};

const KEPT_S = 90 * 86_400;
/** More conditions than this at once are not told one by one. */
const OPEN_MAX = 2_000;
const LEADER_MS = 30_000;

const alertSchema = new Schema<StoredAlert>(
  { _id: { type: String, required: true } },
  { collection: 'alerts', versionKey: false, strict: false },
);
// Two processes that see a condition begin at the same moment raise one alert.
alertSchema.index({ key: 1 }, { unique: true, name: 'open', partialFilterExpression: { open: true } });
alertSchema.index({ beganAt: -1, _id: -1 });
alertSchema.index({ assistantId: 1, beganAt: -1, _id: -1 });
alertSchema.index({ untold: 1 }, { name: 'untold', partialFilterExpression: { untold: { $exists: true } } });
alertSchema.index({ endedAt: 1 }, { expireAfterSeconds: KEPT_S });

type Watch = { _id: string; at?: Date };
const watchSchema = new Schema<Watch>(
  { _id: { type: String, required: true } },
  { collection: 'alertWatch', versionKey: false, strict: false },
);

const keyOf = ({ kind, target }: Pick<Condition, 'kind' | 'target'>): string => `${kind}:${target}`;

export type AlertFilter = {
  assistantIds: string[] | null;
  open?: boolean;
  after?: { at: Date; id: string };
  limit: number;
};

/** Alerts with a beginning and an end, and who has to be told. */
export type AlertStore = {
  models: Indexed[];

  /** Acquires or renews the right to watch conditions, which one process has at a time. */
  lead: (token: string) => Promise<boolean>;
  /** Gives the right back. */
  release: (token: string) => Promise<void>;

  /** A worker notes that its sweeps run. */
  noteSweep: () => Promise<void>;
  /** When a worker last did. Null if none ever has. */
  lastSweepAt: () => Promise<Date | null>;

  /**
   * Stores what is true now, of these kinds: begins alerts that are not open, and ends those that were not seen for
   * `endsAfterMs`. `channels` are to be told.
   */
  update: (
    now: { kinds: AlertKind[]; conditions: Condition[] },
    options: { channels: AlertChannel[]; endsAfterMs: number },
  ) => Promise<{ began: StoredAlert[]; ended: StoredAlert[] }>;

  /** Begins one alert, unless it is open. */
  begin: (condition: Condition, channels: AlertChannel[]) => Promise<void>;

  /** The open alerts of a kind. */
  listOpen: (kind: AlertKind, limit: number) => Promise<StoredAlert[]>;

  /** The oldest changes that a channel has not been told. */
  listUntold: (channel: AlertChannel, limit: number) => Promise<StoredAlert[]>;
  /** Notes that the channel was told. An alert that has changed since stays. */
  markTold: (channel: AlertChannel, alerts: StoredAlert[]) => Promise<void>;

  list: (filter: AlertFilter) => Promise<{ alerts: StoredAlert[]; next: { at: Date; id: string } | null }>;
  countOpen: (assistantIds: string[] | null) => Promise<number>;
  /** Of an alert that these assistants do not have: not found. */
  acknowledge: (
    alertId: string,
    by: { operatorId: string; by: string },
    assistantIds: string[] | null,
  ) => Promise<StoredAlert>;
};

export const createAlertStore = (connection: Connection): AlertStore => {
  const model: Model<StoredAlert> = connection.model<StoredAlert>('Alert', alertSchema);
  const watchModel = connection.model<Watch>('AlertWatch', watchSchema);
  const alerts = collectionOf(model);
  const watches = collectionOf(watchModel);
  const lease = leaseIn('lease', LEADER_MS);
  const leader = { _id: 'leader' };

  const visible = (assistantIds: string[] | null): mongo.Filter<StoredAlert> =>
    assistantIds === null ? {} : { assistantId: { $in: assistantIds } };

  const begin = async (condition: Condition, channels: AlertChannel[]): Promise<StoredAlert | null> => {
    const now = serverDate();
    const alert: StoredAlert = {
      _id: newId(),
      key: keyOf(condition),
      ...condition,
      beganAt: now,
      seenAt: now,
      endedAt: null,
      open: true,
      acknowledged: null,
      ...(channels.length > 0 && { untold: channels }),
    };
    try {
      await alerts.insertOne(alert);
      return alert;
    } catch (cause) {
      if (isDuplicateKey(cause)) return null;
      throw cause;
    }
  };

  const end = async (alert: StoredAlert, channels: AlertChannel[]): Promise<StoredAlert | null> => {
    // A channel that has not been told the beginning is told nothing of what is over.
    const told = channels.filter((channel) => !alert.untold?.includes(channel));
    return alerts.findOneAndUpdate(
      { _id: alert._id, open: true, seenAt: alert.seenAt },
      {
        $set: { endedAt: serverDate(), ...(told.length > 0 && { untold: told }) },
        $unset: { open: '', ...(told.length === 0 && { untold: '' }) },
      },
      { returnDocument: 'after' },
    );
  };

  return {
    models: [model, watchModel],

    lead: async (token) => {
      const acquire = async (): Promise<boolean> => {
        const mine = { ...leader, $or: [lease.heldBy(token), lease.free] };
        const { matchedCount } = await watches.updateOne(mine, [{ $set: { lease: lease.renewed(token) } }]);
        return matchedCount === 1;
      };
      if (await acquire()) return true;
      if (await watches.findOne(leader, { projection: { _id: 1 } })) return false;
      await watches.insertOne({ ...leader }).catch((cause: unknown) => {
        if (!isDuplicateKey(cause)) throw cause;
      });
      return acquire();
    },

    release: async (token) => {
      await watches.updateOne({ ...leader, ...lease.heldBy(token) }, { $unset: lease.ended });
    },

    noteSweep: async () => {
      await watches.updateOne({ _id: 'sweeps' }, [{ $set: { at: '$$NOW' } }], { upsert: true });
    },

    lastSweepAt: async () => (await watches.findOne({ _id: 'sweeps' }))?.at ?? null,

    update: async ({ kinds, conditions }, { channels, endsAfterMs }) => {
      const open = await alerts.find({ open: true }, { limit: OPEN_MAX }).hint('open').toArray();
      const known = new Map(open.map((alert) => [alert.key, alert]));
      const present = new Map(conditions.map((one) => [keyOf(one), one]));
      const now = serverDate();
      const seen = open.filter(({ key }) => present.has(key)).map(({ _id }) => _id);
      if (seen.length > 0) await alerts.updateMany({ _id: { $in: seen }, open: true }, { $set: { seenAt: now } });
      const [began, ended]: [StoredAlert[], StoredAlert[]] = [[], []];
      const room = OPEN_MAX - open.length;
      for (const [key, one] of present) {
        const alert = known.has(key) || began.length >= room ? null : await begin(one, channels);
        if (alert) began.push(alert);
      }
      for (const alert of open) {
        const isOver = kinds.includes(alert.kind) && !present.has(alert.key);
        if (!isOver || now.getTime() - alert.seenAt.getTime() < endsAfterMs) continue;
        const over = await end(alert, channels);
        if (over) ended.push(over);
      }
      return { began, ended };
    },

    begin: async (condition, channels) => {
      await begin(condition, channels);
    },

    listOpen: (kind, limit) => alerts.find({ open: true, kind }, { limit }).hint('open').toArray(),

    listUntold: (channel, limit) =>
      alerts
        .find({ untold: channel }, { limit, sort: { beganAt: 1 } })
        .hint('untold')
        .toArray(),

    markTold: async (channel, told) => {
      if (told.length === 0) return;
      await alerts.bulkWrite(
        told.map(({ _id, endedAt }) => ({
          updateOne: {
            filter: { _id, endedAt },
            update: [
              { $set: { untold: { $setDifference: ['$untold', [channel]] } } },
              { $set: { untold: { $cond: [{ $eq: ['$untold', []] }, '$$REMOVE', '$untold'] } } },
            ],
          },
        })),
      );
    },

    list: async ({ assistantIds, open, after, limit }) => {
      const found = alerts.find({
        ...visible(assistantIds),
        ...(open === true && { open: true }),
        ...(open === false && { endedAt: { $ne: null } }),
        ...(after && { $or: [{ beganAt: { $lt: after.at } }, { beganAt: after.at, _id: { $lt: after.id } }] }),
      });
      const sorted = found.sort({ beganAt: -1, _id: -1 }).limit(limit + 1);
      // Among all alerts, open ones may be far apart.
      const rows = await (open === true ? sorted.hint('open') : sorted).toArray();
      const last = rows.length > limit ? rows[limit - 1] : undefined;
      return { alerts: rows.slice(0, limit), next: last ? { at: last.beganAt, id: last._id } : null };
    },

    countOpen: (assistantIds) =>
      alerts.countDocuments({ open: true, ...visible(assistantIds) }, { hint: 'open', limit: 1_000 }),

    acknowledge: async (alertId, by, assistantIds) => {
      const alert = await alerts.findOneAndUpdate(
        { _id: alertId, ...visible(assistantIds) },
        [
          {
            $set: {
              acknowledged: {
                $ifNull: [
                  '$acknowledged',
                  { at: '$$NOW', operatorId: { $literal: by.operatorId }, by: { $literal: by.by } },
                ],
              },
            },
          },
        ],
        { returnDocument: 'after' },
      );
      if (!alert) throw notFound();
      return alert;
    },
  };
};
