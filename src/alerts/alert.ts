import type { Connection, Model, mongo } from 'mongoose';
import { leaseIn } from '../platform/mongo/batches.ts';
import { isDuplicateKey } from '../platform/mongo/failures.ts';
import { collectionOf, type Indexed, schemaOf } from '../platform/mongo/mongo.ts';
import { serverDate } from '../platform/process/clock.ts';
import { orNotFound } from '../platform/process/errors.ts';
import { newId } from '../platform/process/ids.ts';

/** What needs somebody's attention. docs/operating.md says for each what to look at and do. */
export const ALERT_KINDS = [
  'endpoint_failing',
  'endpoint_paused',
  'certificate_expires',
  'events_late',
  'person_waits',
  'provider_failing',
  'quota_near',
  'quota_reached',
  'budget_near',
  'budget_reached',
  'queue_stuck',
  'worker_silent',
  'sweeps_stopped',
  'redis_unavailable',
  'redis_full',
  'disk_full',
] as const;
export type AlertKind = (typeof ALERT_KINDS)[number];

export type AlertChannel = 'webhook' | 'email';

type AlertDetails = Record<string, string | number | Date | null>;

/** Something that is true now. `target`: an endpoint, a queue or an assistant; with the kind it names one alert. */
export type Condition = { kind: AlertKind; target: string; assistantId: string | null; details: AlertDetails };

/** A condition from its beginning to its end. */
export type StoredAlert = Condition & {
  _id: string;
  key: string;
  beganAt: Date;
  seenAt: Date;
  endedAt: Date | null;
  /** Set only while the alert is open, for the indexes. */
  open?: true;
  /** When it opened again, because its condition returned soon after its end. */
  returnedAt?: Date;
  acknowledged: { at: Date; operatorId: string; by: string } | null;
  /** The channels that have not been told the latest change. Absent if all have. */
  untold?: AlertChannel[];
};

const KEPT_S = 90 * 86_400;
/** How many open alerts of assistants are told one by one. */
const OPEN_MAX = 2_000;
/** How many an assistant may always have, so that a few others with very many leave room for each. */
const OPEN_OF_EACH = 10;
/** How many open alerts a round reads. `OPEN_MAX` does not limit those of the service and of waiting visitors. */
const LISTED_MAX = 12_000;
const RETURNING = { key: 1, endedAt: -1 } as const;
/** People see the number of open alerts only up to this. */
const SHOWN_MAX = 1_000;
/** How long a process has the right to watch, from when it asked for it. */
export const LEADER_MS = 30_000;

const alertSchema = schemaOf<StoredAlert>('alerts');
// Two processes that see a condition begin at the same moment raise one alert.
alertSchema.index({ key: 1 }, { unique: true, name: 'open', partialFilterExpression: { open: true } });
alertSchema.index({ beganAt: -1, _id: -1 });
alertSchema.index({ assistantId: 1, beganAt: -1, _id: -1 });
alertSchema.index(RETURNING);
alertSchema.index({ untold: 1 }, { name: 'untold', partialFilterExpression: { untold: { $exists: true } } });
alertSchema.index({ endedAt: 1 }, { expireAfterSeconds: KEPT_S });

type Watch = { _id: string; at?: Date };
const watchSchema = schemaOf<Watch>('alertWatch');

const keyOf = ({ kind, target }: Pick<Condition, 'kind' | 'target'>): string => `${kind}:${target}`;

type Room = { isFullFor: (assistantId: string | null) => boolean; full: () => string[]; take: (of: Condition) => void };

/** An assistant may have some alerts, and else as many as remain free, so that other assistants find room too. */
const roomBeside = (open: StoredAlert[]): Room => {
  const counts = new Map<string, number>();
  let free = OPEN_MAX;
  const isFullFor: Room['isFullFor'] = (assistantId) =>
    assistantId !== null && (counts.get(assistantId) ?? 0) >= Math.max(free, OPEN_OF_EACH);
  const take: Room['take'] = ({ assistantId, kind }) => {
    if (assistantId === null || kind === 'person_waits') return;
    counts.set(assistantId, (counts.get(assistantId) ?? 0) + 1);
    free -= 1;
  };
  for (const alert of open) take(alert);
  return { isFullFor, full: () => [...counts.keys()].filter(isFullFor), take };
};

/** Assistants that have as many limited alerts as they may. No new ones need to be looked for. */
export const assistantsWithoutRoom = (open: StoredAlert[]): string[] => roomBeside(open).full();

type AlertFilter = {
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
  /** When a worker last noted that its sweeps run. Null: never. */
  lastSweepAt: () => Promise<Date | null>;

  /**
   * Stores which conditions of these kinds are true now: begins alerts that are not open yet, and ends alerts of `open`
   * whose condition was not seen for `endsAfterMs`, or for `returnsWithinMs` if the alert has returned before.
   * `channels`: to be told.
   */
  update: (
    now: { open: StoredAlert[]; kinds: AlertKind[]; conditions: Condition[] },
    options: { channels: AlertChannel[]; endsAfterMs: number; returnsWithinMs: number },
  ) => Promise<{ began: StoredAlert[]; ended: StoredAlert[] }>;

  /** A visitor waits: begins the assistant's alert, unless it is open. */
  beginWaiting: (assistantId: string, channels: AlertChannel[]) => Promise<void>;

  /** All open alerts. */
  listOpen: () => Promise<StoredAlert[]>;

  /** The oldest changes that a channel has not been told, but none of the kinds `except`. */
  listUntold: (channel: AlertChannel, limit: number, except: AlertKind[]) => Promise<StoredAlert[]>;
  /** Notes that the channel was told. An alert that has changed since remains untold. */
  markTold: (channel: AlertChannel, alerts: StoredAlert[]) => Promise<void>;

  list: (filter: AlertFilter) => Promise<{ alerts: StoredAlert[]; next: { at: Date; id: string } | null }>;
  countOpen: (assistantIds: string[] | null) => Promise<number>;
  /** An alert of another assistant counts as not found. */
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

  /** A later release, beside which this process runs, may know more kinds. It tells of them. */
  const ofKnownKind = { kind: { $in: [...ALERT_KINDS] } };
  const visible = (assistantIds: string[] | null): mongo.Filter<StoredAlert> =>
    assistantIds === null ? {} : { assistantId: { $in: assistantIds } };

  /** Opens the alert of this condition again if it ended after `endedSince`. All channels are told. */
  const reopen = async (
    condition: Condition,
    endedSince: Date,
    channels: AlertChannel[],
  ): Promise<StoredAlert | null> => {
    const now = serverDate();
    const again: Partial<StoredAlert> = {
      details: condition.details,
      seenAt: now,
      endedAt: null,
      open: true,
      returnedAt: now,
      acknowledged: null,
      ...(channels.length > 0 && { untold: channels }),
    };
    return alerts.findOneAndUpdate(
      { key: keyOf(condition), endedAt: { $gt: endedSince } },
      { $set: again },
      { hint: RETURNING, returnDocument: 'after' },
    );
  };

  /** Null if the alert is open already. `returnsWithinMs`: null if an ended alert must not open again. */
  const begin = async (
    condition: Condition,
    channels: AlertChannel[],
    returnsWithinMs: number | null,
  ): Promise<StoredAlert | null> => {
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
      const returned =
        returnsWithinMs === null ? null : await reopen(condition, new Date(now.getTime() - returnsWithinMs), channels);
      if (returned) return returned;
      await alerts.insertOne(alert);
      return alert;
    } catch (cause) {
      if (isDuplicateKey(cause)) return null;
      throw cause;
    }
  };

  const end = async (alert: StoredAlert, channels: AlertChannel[]): Promise<StoredAlert | null> => {
    // A channel that was not told the beginning of an alert is not told its end.
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

  const countOpen = (assistantIds: string[] | null, limit: number): Promise<number> =>
    alerts.countDocuments({ open: true, ...visible(assistantIds) }, { hint: 'open', limit });

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

    update: async ({ open, kinds, conditions }, { channels, endsAfterMs, returnsWithinMs }) => {
      const known = new Map(open.map((alert) => [alert.key, alert]));
      const present = new Map(conditions.map((one) => [keyOf(one), one]));
      const now = serverDate();
      const seen = open.filter(({ key }) => present.has(key)).map(({ _id }) => _id);
      if (seen.length > 0) await alerts.updateMany({ _id: { $in: seen }, open: true }, { $set: { seenAt: now } });
      const [began, ended]: [StoredAlert[], StoredAlert[]] = [[], []];
      const room = roomBeside(open);
      for (const [key, one] of present) {
        if (known.has(key) || room.isFullFor(one.assistantId)) continue;
        const alert = await begin(one, channels, returnsWithinMs);
        if (!alert) continue;
        room.take(alert);
        began.push(alert);
      }
      for (const alert of open) {
        const isOver = kinds.includes(alert.kind) && !present.has(alert.key);
        const lastsMs = alert.returnedAt ? returnsWithinMs : endsAfterMs;
        if (!isOver || now.getTime() - alert.seenAt.getTime() < lastsMs) continue;
        const over = await end(alert, channels);
        if (over) ended.push(over);
      }
      return { began, ended };
    },

    beginWaiting: async (assistantId, channels) => {
      const one: Condition = { kind: 'person_waits', target: assistantId, assistantId, details: {} };
      const isOpen = await alerts.findOne({ key: keyOf(one), open: true }, { hint: 'open', projection: { _id: 1 } });
      if (isOpen || (await countOpen(null, LISTED_MAX)) === LISTED_MAX) return;
      // No ended alert opens again: it was about another visitor, and somebody must know of each.
      await begin(one, channels, null);
    },

    listOpen: () => alerts.find({ open: true }, { limit: LISTED_MAX }).hint('open').toArray(),

    listUntold: (channel, limit, except) =>
      alerts
        .find({ untold: channel, kind: { ...ofKnownKind.kind, $nin: except } }, { limit, sort: { beganAt: 1 } })
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
        ...ofKnownKind,
        ...visible(assistantIds),
        ...(open === true && { open: true }),
        ...(open === false && { endedAt: { $ne: null } }),
        ...(after && { $or: [{ beganAt: { $lt: after.at } }, { beganAt: after.at, _id: { $lt: after.id } }] }),
      });
      const sorted = found.sort({ beganAt: -1, _id: -1 }).limit(limit + 1);
      // Open alerts may be rare among all alerts, so they are read by their own index.
      const rows = await (open === true ? sorted.hint('open') : sorted).toArray();
      const last = rows.length > limit ? rows[limit - 1] : undefined;
      return { alerts: rows.slice(0, limit), next: last ? { at: last.beganAt, id: last._id } : null };
    },

    countOpen: (assistantIds) => countOpen(assistantIds, SHOWN_MAX),

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
      return orNotFound(alert);
    },
  };
};
