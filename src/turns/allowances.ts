import type { Connection, Model, mongo } from 'mongoose';
import { type DayRange, dayOf, type Usage } from '../insights/usage.ts';
import type { Assistant } from '../assistants/assistant.ts';
import { isDuplicateKey } from '../platform/mongo/failures.ts';
import { collectionOf, createStoreBatcher, type Indexed, schemaOf } from '../platform/mongo/mongo.ts';
import { ItemFailure } from '../platform/process/batch.ts';
import { DAY_MS, serverNow } from '../platform/process/clock.ts';
import { ApiError } from '../platform/process/errors.ts';
import { newToken } from '../platform/process/ids.ts';
import type { Logger } from '../platform/process/logger.ts';
import { startSweeper } from '../platform/process/sweeper.ts';
import { createLru } from '../platform/process/lru.ts';

/** An allowance of which this share is used is nearly used up. */
export const NEAR = 0.8;
const KEPT_S = 2 * 86_400;
/** A reservation that is unsettled for this long has lost its process, or its outcome is unknown. */
const LOST_AFTER_MS = 60_000;
/** How many allowances one call of `settleLost` reads. */
const LOST_AT_ONCE = 100;
/** A process remembers for this many allowances, and for this time, that it has compared them with the usage. */
const COMPARED_MAX = 10_000;
const COMPARED_FOR_MS = 600_000;
/** An assistant may have a thousand keys with quotas, so one read of its usage serves all of them for this time. */
const USAGE_FOR_MS = 10_000;
const USAGE_MAX = 50;
/** A process remembers a used-up quota for this time, so that a caller who continues costs nothing. */
const USED_UP_FOR_MS = 1_000;
const USED_UP_MAX = 10_000;
/** A process remembers so many quotas whose turns it gathers. */
const TAKES_MAX = 10_000;
/** What became of reserved turns is written with the next reservation, or after this time at the latest. */
const TOLD_AFTER_MS = 20_000;
const TOLD_AT_ONCE = 20;
/** A list has at most this many allowances of one assistant, which may have a thousand keys. */
const NEAR_OF_ONE = 100;
const NEAR_OF = 'nearOfAssistant';

/**
 * A limit of new turns of an assistant or of a key in a month, or of a provider's tokens of an assistant in a day, in
 * UTC.
 */
export type Allowance = { kind: 'assistant' | 'key' | 'tokens'; target: string; assistantId: string; limit: number };

/** A turn that a quota is reserved for. The message's id tells whether this request made the turn. */
type ReservedTurn = { turnId: string; messageId: string };

/** Where a reservation is counted. */
export type Place = Omit<Allowance, 'limit'> & DayRange & { _id: string };

/** A reservation whose turns are all decided. `refund`: how many of them used nothing. */
type Settled = { token: string; refund: number };

export type StoredAllowance = Omit<Place, 'from' | 'to'> & {
  from: Date;
  until: Date;
  /** The limit of the last reservation. */
  limit: number;
  used: number;
  /** What the last reservation got. */
  granted: number;
  /** 1: from `NEAR` on, also after a refund. 2: used up, or the last reservation did not fit. */
  level?: 1 | 2;
  /** The reservations that are not settled, by token. */
  pending?: Record<string, { at: Date; turns: ReservedTurn[] }>;
  /** When the oldest unsettled reservation was made. */
  pendingFrom?: Date;
};

const schema = schemaOf<StoredAllowance>('allowances');
schema.index({ until: 1 }, { expireAfterSeconds: KEPT_S });
schema.index({ assistantId: 1, until: 1 }, { name: NEAR_OF, partialFilterExpression: { level: { $gte: 1 } } });
schema.index({ pendingFrom: 1 }, { name: 'pending', partialFilterExpression: { pendingFrom: { $exists: true } } });

/** The month or day of a time. */
const periodOf = (kind: Allowance['kind'], at: Date): DayRange => {
  if (kind === 'tokens') return { from: dayOf(at), to: new Date(dayOf(at).getTime() + DAY_MS) };
  const [year, month] = [at.getUTCFullYear(), at.getUTCMonth()];
  return { from: new Date(Date.UTC(year, month)), to: new Date(Date.UTC(year, month + 1)) };
};

export const placeOf = ({ kind, target, assistantId }: Omit<Allowance, 'limit'>): Place => {
  const { from, to } = periodOf(kind, new Date(serverNow()));
  return { _id: `${kind}:${target}:${from.toISOString().slice(0, 10)}`, kind, target, assistantId, from, to };
};

type Wanted = {
  place: Place;
  limit: number;
  /** Turns to reserve under this token. As many are granted as fit. */
  turns?: { token: string; all: ReservedTurn[] };
  /** Tokens to reserve: either all are granted, or none. */
  tokens?: number;
  settled?: Settled[];
};

/**
 * Quotas of turns and budgets of tokens. Nothing is counted above its limit, because each reservation is one update
 * that grants only what is left (docs/design.md, Quotas and budgets).
 */
export type AllowanceStore = {
  models: Indexed[];

  /** Reserves, and settles earlier reservations of the same place in the same write. Returns how much was granted. */
  reserve: (wanted: Wanted) => Promise<number>;

  /**
   * Corrects the reservation of a provider's call once its cost is known. `difference`: the cost minus what was
   * reserved.
   */
  settleTokens: (place: Place, difference: number) => Promise<void>;

  /** Gives back what was reserved for turns that nobody accepted, by processes that are gone. */
  settleLost: (isMade: (turn: ReservedTurn) => Promise<boolean>) => Promise<number>;

  /** What was used of allowances in their present month or day. */
  readUsed: (places: Place[]) => Promise<number[]>;

  /**
   * Lists allowances of this month and day that are nearly or wholly used up, of assistants after `after`, at most
   * `NEAR_OF_ONE` of each. `last`: the last assistant that was read, or '' at the end.
   */
  listNear: (after: string, limit: number) => Promise<{ near: StoredAllowance[]; last: string }>;

  /** Finds the allowances at these places that are nearly or wholly used up. */
  findNear: (places: Place[]) => Promise<StoredAllowance[]>;
};

type Dependencies = { connection: Connection; usage: Pick<Usage, 'sumBy'> };

export const createAllowances = ({ connection, usage }: Dependencies): AllowanceStore => {
  const model: Model<StoredAllowance> = connection.model<StoredAllowance>('Allowance', schema);
  const allowances = collectionOf(model);
  const compared = createLru<true>({ most: COMPARED_MAX, ttl: COMPARED_FOR_MS });

  type Sums = { turns: number; tokens: number; turnsOf: Map<string | null, number> };
  const sums = createLru<Promise<Sums>>({ most: USAGE_MAX, ttl: USAGE_FOR_MS });

  const readSums = async ({ assistantId, from, to }: Place): Promise<Sums> => {
    const rows = await usage.sumBy('keyId', assistantId, { from, to });
    return {
      turns: rows.reduce((sum, { turns }) => sum + turns, 0),
      tokens: rows.reduce((sum, { promptTokens, completionTokens }) => sum + promptTokens + completionTokens, 0),
      turnsOf: new Map(rows.map(({ _id, turns }) => [_id, turns])),
    };
  };

  const sumsOf = (place: Place): Promise<Sums> => {
    const period = `${place.assistantId}:${place.from.toISOString()}:${place.to.toISOString()}`;
    const known = sums.get(period);
    if (known) return known;
    const read = readSums(place);
    sums.set(period, read);
    read.catch(() => sums.delete(period));
    return read;
  };

  /** What the projection has counted. It never counts more than was used. */
  const readCounted = async (place: Place): Promise<number> => {
    const { turns, tokens, turnsOf } = await sumsOf(place);
    if (place.kind === 'key') return turnsOf.get(place.target) ?? 0;
    return place.kind === 'tokens' ? tokens : turns;
  };

  /** What was used before this limit was set, or before the counter was lost. Rarely read, see `COMPARED_FOR_MS`. */
  const usedBefore = async (place: Place, limit: number): Promise<number> => {
    const key = `${place._id}:${limit}`;
    if (compared.has(key)) return 0;
    const counted = await readCounted(place);
    compared.set(key, true);
    return counted;
  };

  const stagesOf = ({ place, limit, turns, tokens = 0, settled = [] }: Wanted, atLeast: number): mongo.Document[] => {
    const { kind, target, assistantId, from, to: until } = place;
    const amount = turns ? turns.all.length : tokens;
    // A reservation that was settled already is no longer pending, so nothing is given back twice.
    const refunds = settled.map(({ token, refund }) => ({
      $cond: [{ $eq: [{ $type: `$pending.${token}` }, 'missing'] }, 0, refund],
    }));
    const left = { $subtract: [limit, '$used'] };
    const granted = turns ? { $max: [0, { $min: [amount, left] }] } : { $cond: [{ $lte: [amount, left] }, amount, 0] };
    const reservation = turns &&
      amount > 0 && {
        $cond: [
          { $gt: ['$granted', 0] },
          {
            [turns.token]: {
              at: '$$NOW',
              turns: { $slice: [{ $literal: turns.all }, { $max: [1, '$granted'] }] },
            },
          },
          {},
        ],
      };
    const pendingTimes = { $map: { input: { $objectToArray: { $ifNull: ['$pending', {}] } }, in: '$$this.v.at' } };
    return [
      {
        $set: {
          ...Object.fromEntries(
            Object.entries({ kind, target, assistantId, from, until, limit }).map(([name, value]) => [
              name,
              { $literal: value },
            ]),
          ),
          level: { $cond: [{ $eq: ['$limit', limit] }, '$level', '$$REMOVE'] },
          used: { $max: [{ $subtract: [{ $ifNull: ['$used', 0] }, { $add: [0, ...refunds] }] }, atLeast] },
        },
      },
      { $set: { granted } },
      {
        $set: {
          used: { $add: ['$used', '$granted'] },
          ...(reservation && { pending: { $mergeObjects: ['$pending', reservation] } }),
        },
      },
      ...(settled.length > 0 ? [{ $unset: settled.map(({ token }) => `pending.${token}`) }] : []),
      {
        $set: {
          pendingFrom: { $ifNull: [{ $min: pendingTimes }, '$$REMOVE'] },
          level: {
            $cond: [
              { $or: [{ $lt: ['$granted', amount] }, { $gte: ['$used', limit] }] },
              2,
              { $cond: [{ $or: [{ $gte: ['$used', NEAR * limit] }, { $gte: ['$level', 1] }] }, 1, '$$REMOVE'] },
            ],
          },
        },
      },
    ];
  };

  const write = async (wanted: Wanted, atLeast: number): Promise<number> => {
    const after = await allowances.findOneAndUpdate({ _id: wanted.place._id }, stagesOf(wanted, atLeast), {
      upsert: true,
      returnDocument: 'after',
      projection: { granted: 1 },
    });
    return after?.granted ?? 0;
  };

  /** Settles a reservation. Has no effect if it is already settled. */
  const settleOne = async (
    { kind, target, assistantId, from, until: to, _id, limit }: StoredAllowance,
    one: Settled,
  ): Promise<void> => {
    const place = { _id, kind, target, assistantId, from, to };
    await write({ place, limit, turns: { token: '', all: [] }, settled: [one] }, 0);
  };

  return {
    models: [model],

    reserve: async (wanted) => {
      const atLeast = await usedBefore(wanted.place, wanted.limit);
      return write(wanted, atLeast).catch((cause: unknown) => {
        if (!isDuplicateKey(cause)) throw cause;
        return write(wanted, atLeast); // another process has just made the document
      });
    },

    settleTokens: async ({ _id }, difference) => {
      await allowances.updateOne({ _id }, { $inc: { used: difference } });
    },

    settleLost: async (isMade) => {
      const lost = await allowances
        .find({
          // The range makes MongoDB use the index. The exact comparison is the one with `$$NOW`.
          pendingFrom: { $lt: new Date(serverNow() - LOST_AFTER_MS) },
          $expr: { $lt: ['$pendingFrom', { $subtract: ['$$NOW', LOST_AFTER_MS] }] },
        })
        .hint('pending')
        .limit(LOST_AT_ONCE)
        .toArray();
      let settled = 0;
      for (const one of lost)
        for (const [token, { at, turns }] of Object.entries(one.pending ?? {})) {
          if (serverNow() - at.getTime() < LOST_AFTER_MS) continue;
          let refund = 0;
          for (const turn of turns) if (!(await isMade(turn))) refund += 1;
          await settleOne(one, { token, refund });
          settled += 1;
        }
      return settled;
    },

    readUsed: async (places) => {
      const ids = places.map(({ _id }) => _id);
      const rows = await allowances.find({ _id: { $in: ids } }, { projection: { used: 1 } }).toArray();
      const known = new Map(rows.map(({ _id, used }) => [_id, used]));
      return Promise.all(places.map(async (place) => Math.max(known.get(place._id) ?? 0, await readCounted(place))));
    },

    findNear: (places) =>
      allowances
        .find(
          { _id: { $in: places.map(({ _id }) => _id) }, level: { $gte: 1 } },
          { projection: { pending: 0 }, limit: places.length },
        )
        .toArray(),

    listNear: async (from, limit) => {
      const near: StoredAllowance[] = [];
      for (let after = from; ; ) {
        const next = await allowances
          .find(
            { assistantId: { $gt: after }, until: { $gt: new Date(serverNow()) }, level: { $gte: 1 } },
            { projection: { pending: 0 }, sort: { assistantId: 1 }, limit, hint: NEAR_OF },
          )
          .toArray();
        const groups = [...Map.groupBy(next, ({ assistantId }) => assistantId).values()];
        const isLast = next.length < limit;
        // A full read may lack some allowances of its last assistant. The next read begins with this assistant.
        if (!isLast && groups.length > 1 && (groups.at(-1)?.length ?? 0) < NEAR_OF_ONE) groups.pop();
        for (const own of groups) {
          if (near.length > 0 && near.length + Math.min(own.length, NEAR_OF_ONE) > limit) return { near, last: after };
          near.push(...own.slice(0, NEAR_OF_ONE));
          after = own[0]?.assistantId ?? after;
        }
        if (isLast) return { near, last: '' };
      }
    },
  };
};

/**
 * The reservation of a provider's call. `settle` tells the cost. Without `settle`, the whole reservation counts as
 * used.
 */
export type ReservedCall = { settle: (tokens: number) => void };

/** Reserves the maximum cost of a call. Null if the budget has less left. */
export type ReserveCall = (assistantId: string, limit: number, tokens: number) => Promise<ReservedCall | null>;

/**
 * The budget of a provider's calls. A call is reserved before it is made and settled after it. What a killed worker has
 * reserved stays spent, because the provider may have answered.
 */
export const createReserveCall =
  (store: Pick<AllowanceStore, 'reserve' | 'settleTokens'>, onFailed: (cause: unknown) => void): ReserveCall =>
  async (assistantId, limit, tokens) => {
    const place = placeOf({ kind: 'tokens', target: assistantId, assistantId });
    if ((await store.reserve({ place, limit, tokens })) < tokens) return null;
    return {
      settle: (cost) => {
        if (cost !== tokens) store.settleTokens(place, cost - tokens).catch(onFailed);
      },
    };
  };

/** The reservation of a turn in its quotas. If `settle` is never called, a worker finds the outcome (`settleLost`). */
export type Reservation = { settle: (isNew: boolean) => void };

/** What a turn must fit into: the quota of its key and that of its assistant, as far as they are set. */
export const quotasOf = (
  { assistantId, turnsPerMonth }: Pick<Assistant, 'assistantId' | 'turnsPerMonth'>,
  key: { keyId: string; turnsPerMonth: number | null } | null,
): Allowance[] => [
  ...(key?.turnsPerMonth == null
    ? []
    : [{ kind: 'key' as const, target: key.keyId, assistantId, limit: key.turnsPerMonth }]),
  ...(turnsPerMonth === null
    ? []
    : [{ kind: 'assistant' as const, target: assistantId, assistantId, limit: turnsPerMonth }]),
];

const quotaExceeded = ({ kind, to }: Place): ApiError => {
  const whose = kind === 'key' ? 'this API key' : 'this assistant';
  const date = to.toISOString().slice(0, 10);
  return new ApiError('quota_exceeded', {
    message: `The quota of ${whose} is used up until ${date} (UTC).`,
    headers: { 'Retry-After': String(Math.max(1, Math.ceil((to.getTime() - serverNow()) / 1000))) },
  });
};

/**
 * Monthly quotas of turns. A turn is reserved before it is accepted, in one update with all turns that arrived
 * meanwhile, and settled when it is known whether it was a new turn.
 */
export type Quotas = {
  /**
   * Reserves a turn. Returns the error for the caller if a quota is used up: the request may then only repeat a turn.
   * Throws if MongoDB is unavailable; the turn must then not be accepted.
   */
  reserve: (quotas: Allowance[], turn: ReservedTurn) => Promise<Reservation | ApiError>;

  /** Writes what was decided about reserved turns, before the process ends. */
  close: () => Promise<void>;
};

/** The turns of one update. */
type Batch = { place: Place; limit: number; token: string; open: number; refund: number };

export const createQuotas = (allowances: Pick<AllowanceStore, 'reserve'>, logger: Logger): Quotas => {
  const usedUp = createLru<number>({ most: USED_UP_MAX, ttl: USED_UP_FOR_MS });
  /** Decided batches that are not written to MongoDB yet, by place. */
  const decided = new Map<string, { place: Place; limit: number; settled: Settled[] }>();

  const takeDecided = (placeId: string): Settled[] => {
    const settled = decided.get(placeId)?.settled ?? [];
    decided.delete(placeId);
    return settled;
  };

  const addDecided = ({ place, limit }: Pick<Batch, 'place' | 'limit'>, settled: Settled[]): void => {
    if (settled.length === 0) return;
    const known = decided.get(place._id);
    if (known) known.settled.push(...settled);
    else decided.set(place._id, { place, limit, settled });
  };

  const send = async (
    place: Place,
    limit: number,
    turns: ReservedTurn[],
  ): Promise<{ token: string; granted: number }> => {
    const [token, settled] = [newToken(), takeDecided(place._id)];
    try {
      const granted = await allowances.reserve({ place, limit, turns: { token, all: turns }, settled });
      return { token, granted };
    } catch (cause) {
      addDecided({ place, limit }, settled); // writing it twice does no harm
      throw cause;
    }
  };

  const settle = (batch: Batch, isNew: boolean): void => {
    batch.open -= 1;
    if (!isNew) batch.refund += 1;
    if (batch.open === 0) addDecided(batch, [{ token: batch.token, refund: batch.refund }]);
  };

  /** Null for a turn that does not fit. */
  const reserveAll = async (place: Place, limit: number, turns: ReservedTurn[]): Promise<(Batch | null)[]> => {
    const { token, granted } = await send(place, limit, turns);
    if (granted < turns.length) usedUp.set(place._id, limit);
    const batch: Batch = { place, limit, token, open: granted, refund: 0 };
    return turns.map((_, nth) => (nth < granted ? batch : null));
  };

  /** Gathers the turns of one quota, so that none waits for a slow answer about another quota. */
  const createTake = (place: Place, limit: number): ((turn: ReservedTurn) => Promise<Batch | null>) =>
    createStoreBatcher((turns) =>
      // Nothing is repeated, because what was reserved may be stored.
      reserveAll(place, limit, turns).catch((cause: unknown) => turns.map(() => new ItemFailure(cause))),
    );
  const takes = createLru<ReturnType<typeof createTake>>({ most: TAKES_MAX });
  const take = (place: Place, limit: number, turn: ReservedTurn): Promise<Batch | null> => {
    const key = `${place._id} ${limit}`;
    const known = takes.get(key) ?? createTake(place, limit);
    takes.set(key, known);
    return known(turn);
  };

  const tell = async (): Promise<void> => {
    for (let some = [...decided.values()].slice(0, TOLD_AT_ONCE); some.length > 0; ) {
      await Promise.all(some.map(({ place, limit }) => send(place, limit, [])));
      some = [...decided.values()].slice(0, TOLD_AT_ONCE);
    }
  };
  const telling = startSweeper('quotas', tell, { everyMs: TOLD_AFTER_MS, logger });

  return {
    reserve: async (quotas, turn) => {
      const wanted = quotas.map((one) => ({ place: placeOf(one), limit: one.limit }));
      const known = wanted.find(({ place, limit }) => usedUp.get(place._id) === limit);
      if (known) return quotaExceeded(known.place);
      const taken = await Promise.allSettled(wanted.map(({ place, limit }) => take(place, limit, turn)));
      const batches = taken.flatMap((one) => (one.status === 'fulfilled' && one.value ? [one.value] : []));
      const reservation = { settle: (isNew: boolean): void => batches.forEach((batch) => settle(batch, isNew)) };
      if (batches.length === wanted.length) return reservation;
      reservation.settle(false);
      const failed = taken.find((one) => one.status === 'rejected');
      if (failed) throw failed.reason;
      const first = taken.findIndex((one) => one.status === 'fulfilled' && one.value === null);
      return quotaExceeded((wanted[first] as (typeof wanted)[number]).place);
    },

    close: async () => {
      await telling.stop();
      await tell().catch(() => undefined); // a worker settles them (`settleLost`)
    },
  };
};
