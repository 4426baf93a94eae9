import type { Connection, mongo } from 'mongoose';
import { serverDate, serverNow } from '../platform/process/clock.ts';
import { isUuid, newId, prefixRange } from '../platform/process/ids.ts';
import { createSlots, inOrder, inTurnsOfHolders, LEAST_TIME_FIRST, oneEach } from '../platform/process/slots.ts';
import { TIMING } from '../platform/process/time-limits.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { collectionOf, DURABLE, type Indexed, schemaOf } from '../platform/mongo/mongo.ts';
import { conversationModels, IDENTITY, type StoredConversation } from './conversation.ts';
import type { MessagePages } from './history.ts';
import { countByEndpoint } from './outbox.ts';

const FIRST_PURGE_MS = 60_000;
const LAST_PURGE_MS = 86_400_000;
const PURGES = 2;
/** After this time, another process repeats a purge that was begun and has not ended. */
const PURGE_LEASE_MS = 60_000;
/** The time of a purge at the erasure, and the longest time that a caller waits for it. A longer one is left to sweeps. */
const PURGED_WITHIN_MS = 1_000;
/** How many purges, or announcements, at erasures run at once, one of each assistant. They leave connections to turns. */
const PURGES_AT_ONCE = 4;
/** A purge of a sweep that takes longer is continued when those of other assistants had their turns. */
const PURGED_FOR_MS = 30_000;
/** A round begins to erase old conversations of one assistant for this long, so that others do not wait for them. */
const UNCHANGED_FOR_MS = 5_000;
/** How many tombstones a sweep reads, of all and of one assistant, and how many assistants it handles at once. */
const DUE_MAX = 500;
const DUE_OF_ONE = 50;
const ASSISTANTS_AT_ONCE = 4;
/** A sweep begins purges, or announcements, of one assistant for this long. Then others have its turn. */
const HANDLED_FOR_MS = 5_000;
/** A sweep begins announcements for this long, because a process whose sweep takes half a minute counts as stuck. */
const ANNOUNCED_FOR_MS = 15_000;

/** Records that a conversation was erased, so that late writes to it are deleted too. Contains no text. */
type StoredTombstone = {
  _id: string;
  assistantId: string;
  erasedAt: Date;
  purgeAt: Date;
  /** One after a minute and one after a day. One more is due immediately if the purge at the erasure failed. */
  purgesLeft: number;
  /** The id of the event that tells endpoints of the erasure. */
  eventId: string;
  /** When the event is announced. Absent once it is. */
  announceAt?: Date;
  /** How many events of the conversation had been removed from its outbox, by endpoint. */
  ended?: Record<string, number>;
  /** Set if the conversation is erased because of its age. It is kept if it has changed since this time. */
  unchangedSince?: Date;
};

type When = 'purgeAt' | 'announceAt';

/** The name of the collection. Live updates learn of erasures from inserts into it. */
export const TOMBSTONES = 'tombstones';

const tombstoneSchema = schemaOf<StoredTombstone>(TOMBSTONES);
tombstoneSchema.index({ assistantId: 1, purgeAt: 1 });
tombstoneSchema.index(
  { assistantId: 1, announceAt: 1 },
  { partialFilterExpression: { announceAt: { $exists: true } } },
);

export type ErasedConversation = { conversationId: string; assistantId: string };

/**
 * Erases what other folders store for a conversation; `openService` (src/service.ts) has the list. A later purge passes
 * the time of the erasure as `unboundBefore`, because no request from before that time is running any more.
 */
export type EraseElsewhere = (
  erased: ErasedConversation,
  when: { until: AbortSignal; unboundBefore?: Date },
) => Promise<void>;

/** What endpoints are told of an erasure. */
export type ErasureEvent = Required<Pick<StoredTombstone, 'assistantId' | 'eventId' | 'erasedAt' | 'ended'>> & {
  conversationId: string;
};

/**
 * Stores the event that tells endpoints of an erasure. May be called again, without effect. False if another event of
 * the conversation is in flight.
 */
export type AnnounceErased = (erased: ErasureEvent) => Promise<boolean>;

/**
 * After this time, no worker can send an event that it read before the erasure: by then every send has ended, and so
 * has every claim whose worker is gone.
 */
const SENT_UNTIL_MS = TIMING.claimEndedWithinMs + 1_000;

/** An erasure that cannot be announced yet is tried again after this time, so that others go first. */
const ANNOUNCED_AGAIN_AFTER_MS = 2_000;
/** While a process announces an erasure, others leave it. One that failed is tried again after this time. */
const ANNOUNCE_LEASE_MS = 30_000;

type Dependencies = {
  connection: Connection;
  pages: MessagePages;
  eraseElsewhere: EraseElsewhere;
  announceErased: AnnounceErased;
  /** After this signal, long purges stop in this process, and another process must finish them. */
  draining: AbortSignal;
  purgedForMs?: number;
  handledForMs?: number;
  announcedForMs?: number;
};

type Erased = Pick<StoredConversation, '_id' | 'conversationId' | 'assistantId'>;

/**
 * Deletes conversations for good (docs/contract.md, Erase). The conversation's document is deleted first, so that the
 * session can start again immediately.
 */
export type Erasure = {
  models: Indexed[];

  /**
   * Resolves once the document is deleted. `erased` has `ERASED_FIELDS` of it, for the callers who wait and must be
   * told. It is null if the document was already deleted. `purged` resolves when everything else is announced and deleted,
   * or after one second. What takes longer continues. The tombstone ensures that a failed purge is repeated.
   */
  erase: (conversation: Erased) => Promise<{ erased: StoredConversation | null; purged: Promise<void> }>;

  /** Erases conversations unchanged since `since` and without a pending turn, oldest first, for some seconds. Returns their number. */
  eraseUnchanged: (
    of: { assistantId: string; since: Date; most: number },
    onErased: (erased: StoredConversation) => void,
  ) => Promise<number>;

  /**
   * Repeats some of the due purges; assistants take turns. Each is repeated after a minute and after a day, because some
   * writes were in flight at the erasure. Resolves with their number: 0 if nothing is due or other processes make all.
   */
  purgeAgain: () => Promise<number>;

  /** Announces erasures whose conversations certainly have no event in flight any more. */
  announceErasures: () => Promise<void>;
};

/** What is used of an erased conversation, which may have some megabytes. */
const ERASED_FIELDS = { ...IDENTITY, 'waiting.turnId': 1, 'waiting.replyTo': 1, 'outbox.eventId': 1 };
type Buried = { erased: StoredConversation; unannounced?: StoredTombstone };

const unchanged = (since: Date | undefined): mongo.Filter<StoredConversation> =>
  since ? { updatedAt: { $lt: since }, 'waiting.0': { $exists: false } } : {};

export const createErasure = (dependencies: Dependencies): Erasure => {
  const { connection, pages, eraseElsewhere, announceErased, draining } = dependencies;
  const { purgedForMs = PURGED_FOR_MS, handledForMs = HANDLED_FOR_MS } = dependencies;
  const { announcedForMs = ANNOUNCED_FOR_MS } = dependencies;
  const model = connection.model<StoredTombstone>('Tombstone', tombstoneSchema);
  const tombstones = collectionOf<StoredTombstone>(model);
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const slots = () => createSlots(oneEach(PURGES_AT_ONCE), LEAST_TIME_FIRST);
  const [purges, announcements] = [slots(), slots()];
  const purge = async (erased: ErasedConversation, forMs: number, unboundBefore?: Date): Promise<void> => {
    const until = AbortSignal.any([draining, AbortSignal.timeout(forMs)]);
    await pages.erase(erased.conversationId, until);
    await eraseElsewhere(erased, { until, ...(unboundBefore && { unboundBefore }) });
  };

  /** A purge that fails or takes long, or for which there is no room, is left to the next sweep. */
  const purgeOrLeave = async (erased: ErasedConversation, unannounced?: StoredTombstone): Promise<void> => {
    if (unannounced) await announceNow(unannounced); // first, because a purge ends what is still being sent
    try {
      const slot = await purges.acquire(erased.assistantId, { signal: draining });
      if (!slot) throw new Error('too many purges of this assistant wait');
      await purge(erased, Math.min(PURGED_WITHIN_MS, purgedForMs)).finally(slot.release);
    } catch {
      const next = { purgeAt: new Date(0), purgesLeft: PURGES + 1 };
      await tombstones.updateOne({ _id: erased.conversationId, purgesLeft: PURGES }, { $set: next });
    }
  };

  /** Announces and purges what was just erased. Resolves after a second at the latest, and what takes longer continues. */
  const purgeNow = (erased: ErasedConversation, unannounced?: StoredTombstone): Promise<void> =>
    withDeadline(purgeOrLeave(erased, unannounced), PURGED_WITHIN_MS).catch(() => undefined);

  /** True if the conversation was to be erased because of its age, but still exists. */
  const isLeft = async ({ _id, unchangedSince }: StoredTombstone): Promise<boolean> => {
    if (!unchangedSince || !isUuid(_id)) return false;
    const own = { _id: prefixRange(_id), conversationId: _id };
    return (await conversations.findOne(own, { projection: { _id: 1 } })) !== null;
  };

  /** Deletes the tombstone if its conversation is used again, unless somebody has erased the conversation after all. */
  const takeBackIfUsed = async (tombstone: StoredTombstone): Promise<boolean> => {
    const { _id, unchangedSince } = tombstone;
    if (!unchangedSince || !(await isLeft(tombstone))) return false;
    await tombstones.deleteOne({ _id, unchangedSince }, { writeConcern: DURABLE });
    return true;
  };

  const purgeDue = async (tombstone: StoredTombstone): Promise<void> => {
    const { _id, assistantId, erasedAt, purgesLeft, unchangedSince } = tombstone;
    // If an erasure stopped before it deleted the document, this call deletes the document.
    if (isUuid(_id)) {
      const own = { ...unchanged(unchangedSince), _id: prefixRange(_id), conversationId: _id };
      await conversations.deleteOne(own, { writeConcern: DURABLE });
    }
    if (await takeBackIfUsed(tombstone)) return;
    await purge({ assistantId, conversationId: _id }, purgedForMs, erasedAt);
    if (purgesLeft <= 1) await tombstones.deleteOne({ _id, announceAt: { $exists: false } });
    else {
      const purgeAt = new Date(erasedAt.getTime() + (purgesLeft > PURGES ? FIRST_PURGE_MS : LAST_PURGE_MS));
      await tombstones.updateOne({ _id }, { $set: { purgeAt, purgesLeft: purgesLeft - 1 } });
    }
  };

  /** False if the erasure cannot be announced yet. */
  const announce = async ({ _id, assistantId, eventId, erasedAt, ended = {} }: StoredTombstone): Promise<boolean> => {
    if (!(await announceErased({ conversationId: _id, assistantId, eventId, erasedAt, ended }))) return false;
    await tombstones.updateOne({ _id }, { $unset: { announceAt: '', ended: '' } }, { writeConcern: DURABLE });
    return true;
  };

  /** The assistant after which the next sweep continues. */
  const reached = { purgeAt: '', announceAt: '' };

  /** Reads some of the due tombstones, a few of each assistant. */
  const listDue = async (when: When): Promise<StoredTombstone[]> => {
    const isDue = { [when]: { $exists: true, $lte: serverDate() } };
    const index = { assistantId: 1, [when]: 1 } as const;
    const due: StoredTombstone[] = [];
    const collect = async (): Promise<void> => {
      while (due.length < DUE_MAX) {
        const behind = { ...isDue, assistantId: { $gt: reached[when] } };
        const next = await tombstones.findOne(behind, { hint: index, sort: index, projection: { assistantId: 1 } });
        reached[when] = next?.assistantId ?? '';
        if (!next) return;
        const own = tombstones.find({ ...isDue, assistantId: next.assistantId }).hint(index);
        due.push(...(await own.limit(DUE_OF_ONE).toArray()));
      }
    };
    const isInside = reached[when] !== '';
    await collect();
    if (isInside && due.length === 0) await collect(); // from the first assistant on
    return due;
  };

  /** Handles what is due. After `forMs`, the next sweep goes on with the assistants that are left. */
  const inTurns = async (when: When, forMs: number, handle: (one: StoredTombstone) => Promise<void>) => {
    const due = Map.groupBy(await listDue(when), ({ assistantId }) => assistantId);
    const onBegun = (assistantId: string): void => void (reached[when] = assistantId);
    const limits = { holdersAtOnce: ASSISTANTS_AT_ONCE, eachForMs: handledForMs, forMs, over: draining, onBegun };
    await inTurnsOfHolders(due, limits, handle);
  };

  /** How many events of a conversation have been removed from its outbox, by endpoint. */
  const countEnded = async (own: Pick<Erased, '_id' | 'conversationId'>): Promise<Record<string, number>> => {
    const projection = { announced: 1, 'outbox.endpoints': 1 };
    const { announced = {}, outbox = [] } = (await conversations.findOne(own, { projection })) ?? {};
    const pending = countByEndpoint(outbox);
    return Object.fromEntries(Object.entries(announced).map(([id, count]) => [id, count - (pending.get(id) ?? 0)]));
  };

  /** Stores the tombstone and deletes the document. Null if the document is gone, or has changed after `since`. */
  const bury = async ({ _id, conversationId, assistantId }: Erased, since?: Date): Promise<Buried | null> => {
    const now = serverNow();
    const tombstone = await tombstones.findOneAndUpdate(
      { _id: conversationId },
      {
        $setOnInsert: {
          assistantId, // decides which operators learn of the erasure
          erasedAt: new Date(now),
          purgeAt: new Date(now + FIRST_PURGE_MS),
          purgesLeft: PURGES,
          eventId: newId(),
          ended: await countEnded({ _id, conversationId }),
          // Set before the deletion, so that no crash loses the event.
          announceAt: new Date(now + SENT_UNTIL_MS),
          ...(since && { unchangedSince: since }),
        },
        // An erasure for another reason does not depend on the conversation's age.
        ...(!since && { $unset: { unchangedSince: '' } }),
      },
      { upsert: true, returnDocument: 'after', writeConcern: DURABLE },
    );
    const own = { ...unchanged(since), _id, conversationId };
    const erased = await conversations.findOneAndDelete(own, { projection: ERASED_FIELDS, writeConcern: DURABLE });
    if (erased && tombstone) return { erased, ...(!erased.outbox?.length && { unannounced: tombstone }) };
    if (tombstone) await takeBackIfUsed(tombstone);
    return null;
  };

  /** For an erasure without pending events, as usual. Any other, and after a failure or a long wait, a sweep announces. */
  const announceNow = async (tombstone: StoredTombstone): Promise<void> => {
    const slot = await announcements.acquire(tombstone.assistantId, { signal: draining }).catch(() => null);
    if (slot && serverNow() < Number(tombstone.announceAt)) await announce(tombstone).catch(() => undefined);
    slot?.release();
  };

  /** False if another process makes this purge or announcement. */
  const lease = async (tombstone: StoredTombstone, when: When, ms: number): Promise<boolean> => {
    const { _id, [when]: due } = tombstone;
    const leased = { $set: { [when]: new Date(serverNow() + ms) } };
    return (await tombstones.updateOne({ _id, [when]: due }, leased)).modifiedCount === 1;
  };

  return {
    models: [model],

    erase: async ({ _id, conversationId, assistantId }) => {
      const { erased = null, unannounced } = (await bury({ _id, conversationId, assistantId })) ?? {};
      return { erased, purged: purgeNow({ assistantId, conversationId }, unannounced) };
    },

    eraseUnchanged: async ({ assistantId, since, most }, onErased) => {
      const due = conversations.find({ assistantId, ...unchanged(since) }, { projection: { conversationId: 1 } });
      const until = performance.now() + UNCHANGED_FOR_MS;
      let count = 0;
      const oldest = await due.sort({ updatedAt: 1 }).limit(most).toArray();
      const eraseOne = async ({ _id, conversationId }: (typeof oldest)[number]): Promise<void> => {
        if (performance.now() >= until) return;
        // Null if the visitor has come back, or another process has erased the conversation.
        const buried = await bury({ _id, conversationId, assistantId }, since);
        if (!buried) return;
        onErased(buried.erased);
        count += 1;
        await purgeNow({ assistantId, conversationId }, buried.unannounced);
      };
      await inOrder(oldest, eraseOne, draining);
      return count;
    },

    announceErasures: async () => {
      await inTurns('announceAt', announcedForMs, async (one) => {
        if (!(await lease(one, 'announceAt', ANNOUNCE_LEASE_MS))) return;
        if (!(await isLeft(one)) && (await announce(one))) return;
        // An event of the conversation is still being sent.
        const announceAt = new Date(serverNow() + ANNOUNCED_AGAIN_AFTER_MS);
        await tombstones.updateOne({ _id: one._id, announceAt: { $exists: true } }, { $set: { announceAt } });
      });
    },

    purgeAgain: async () => {
      let purged = 0;
      await inTurns('purgeAt', Infinity, async (one) => {
        if (!(await lease(one, 'purgeAt', PURGE_LEASE_MS))) return;
        try {
          await purgeDue(one);
          purged += 1;
        } catch (cause) {
          // It is due again a minute later, until it succeeds.
          if (!draining.aborted && !(cause instanceof DOMException && cause.name === 'TimeoutError')) throw cause;
          const behind = { $set: { purgeAt: serverDate() } }; // others of the assistant go first
          await tombstones.updateOne({ _id: one._id }, behind).catch(() => undefined);
        }
      });
      return purged;
    },
  };
};
