import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Connection } from 'mongoose';
import type { ItemFailure } from '../platform/process/batch.ts';
import { createRestedWork } from '../platform/http/request-slots.ts';
import { createSlots, oneAtLeast, workInSlot } from '../platform/process/slots.ts';
import { serverNow } from '../platform/process/clock.ts';
import { ApiError, unavailable } from '../platform/process/errors.ts';
import { newPrefixedId } from '../platform/process/ids.ts';
import { type TraceSpan, type Tracing, within } from '../platform/process/tracing.ts';
import {
  DUPLICATE_KEY,
  isMongoUnavailable,
  OutcomeUnknown,
  toItemFailure,
  wasNeverSent,
  wasNotPrimary,
  wasRefused,
} from '../platform/mongo/failures.ts';
import {
  collectionOf,
  createReader,
  createUpdateBatcher,
  type Update,
  updateMany,
  type UpdateStatement,
} from '../platform/mongo/mongo.ts';
import type { ConversationEvent } from './event.ts';
import { type Announce, countAnnounced, countByEndpoint, type ReceiversOf, toOutbox } from './outbox.ts';
import {
  type ChannelName,
  conversationModels,
  CONVERSATIONS,
  type FindDelivered,
  IDENTITY,
  MAX_PENDING,
  type OutboxEvent,
  type PendingTurn,
  type RecentTurn,
  RESUMABLE_FOR_MS,
  type StoredConversation,
  updateOf,
} from './conversation.ts';
import type { History } from './history.ts';
import { act, type Arrived } from './state.ts';

/** A hash of a message's exact text, to recognise a repeated one in its session (docs/contract.md, Retry is safe). */
export const dedupeKeyOf = (message: string): string =>
  createHash('sha256').update(message).digest('base64url').slice(0, 22);

type DedupeQuery = {
  turnId: string;
  /** Null for a message with an `Idempotency-Key`, because such a message is not matched by content. */
  dedupeKey: string | null;
  /**
   * True if an `Idempotency-Key` reserved the turn id. Another request with this key may then have created the turn.
   */
  reserved: boolean;
  windowMs: number;
  now: number;
};

/**
 * What to do with a message whose conversation exists. `own`: an earlier write of this request stored the turn, but the
 * answer to that write was lost. Only `new` and `resume` accept a turn.
 */
export type Decision =
  | { kind: 'own'; turn: PendingTurn }
  | { kind: 'join'; turn: PendingTurn }
  | { kind: 'replay'; turn: RecentTurn }
  | { kind: 'resume'; turn: RecentTurn }
  | { kind: 'busy' }
  | { kind: 'new' };

/**
 * If this many events are pending, a new event names its turn instead of holding its text, because each write rewrites
 * the document.
 */
const LONG_OUTBOX = 50;
const IS_LONG = { $gte: [{ $size: { $ifNull: ['$outbox', []] } }, LONG_OUTBOX] };
/** It is read without texts and events, because a repeated message must not cost more than a new one. */
type KnownConversation = Omit<StoredConversation, 'attributes' | 'outbox' | 'texts'> & { isLong: boolean };
const WAITING = { turnId: 1, messageId: 1, dedupeKey: 1, trace: 1 };
const KNOWN = { ...IDENTITY, status: 1, seq: 1, waiting: WAITING, recent: 1, isLong: IS_LONG };
type KnownTurns = Pick<KnownConversation, 'seq' | 'waiting' | 'recent'>;

const lastSeqOf = ({ seq, replySeq }: RecentTurn): number => Math.max(seq, replySeq ?? 0);

/**
 * True if the turn is the last entry of the conversation: no other turn, pending or finished, and no operator or system
 * message came later. Turns that were answered together are the last entry together.
 */
const isLatest = (turn: RecentTurn, { seq, waiting, recent }: KnownTurns): boolean =>
  waiting.length === 0 && recent.at(-1)?.messageId === (turn.mergedInto ?? turn.messageId) && seq === lastSeqOf(turn);

const resumeOrBusy = (turn: RecentTurn, conversation: KnownTurns): Decision =>
  conversation.waiting.length >= MAX_PENDING ? { kind: 'busy' } : { kind: 'resume', turn };

/**
 * Implements the decision table of docs/contract.md (Retry is safe), in the same order. `isDelivered`: the response is
 * recorded as delivered to a caller.
 */
export const decide = (
  conversation: KnownTurns,
  query: DedupeQuery,
  isDelivered: (turnId: string) => boolean,
): Decision => {
  const { turnId, dedupeKey, now } = query;
  const ownWaiting = conversation.waiting.find((turn) => turn.turnId === turnId);
  if (ownWaiting) return { kind: query.reserved ? 'join' : 'own', turn: ownWaiting };
  const ownRecent = conversation.recent.find((turn) => turn.turnId === turnId);
  if (ownRecent)
    return ownRecent.outcome === 'failed' ? resumeOrBusy(ownRecent, conversation) : { kind: 'replay', turn: ownRecent };

  if (dedupeKey !== null) {
    const inFlight = conversation.waiting.find((turn) => turn.dedupeKey === dedupeKey);
    if (inFlight) return { kind: 'join', turn: inFlight };
    const known = conversation.recent.findLast((turn) => turn.dedupeKey === dedupeKey);
    if (known) {
      // `finishedAt` may come from a clock that is ahead of this one, so the age is never below zero.
      const age = Math.max(0, now - known.finishedAt.getTime());
      if (age <= RESUMABLE_FOR_MS && known.outcome === 'failed') return resumeOrBusy(known, conversation);
      if (age <= RESUMABLE_FOR_MS && !known.async && !isDelivered(known.turnId)) return { kind: 'replay', turn: known };
      if (known.outcome === 'answered' && age < query.windowMs && isLatest(known, conversation))
        return { kind: 'replay', turn: known };
    }
  }
  return conversation.waiting.length >= MAX_PENDING ? { kind: 'busy' } : { kind: 'new' };
};

type AcceptOptions = {
  windowMs: number;
  /**
   * If true, the conversation is read after the write, because the caller needs the conversation's id or other turns of
   * the session are in flight. If false, the turn is assumed to be the head of the pending turns; the worker checks
   * this.
   */
  readBack: boolean;
  /**
   * Called before this request joins a pending turn, so that the caller is already waiting when that turn's reply
   * arrives.
   */
  watch: (turnId: string) => void;
  /** If true, no new turn is accepted: the request may only repeat one. Default: false. */
  onlyRepeated?: boolean;
  /** The span of this accept. */
  span: TraceSpan;
};

export type Accepted =
  | {
      kind: 'accepted';
      /** Null if the conversation was not read back. In this case, the reply contains the id. */
      conversationId: string | null;
      turnId: string;
      /**
       * Whether the turn is the head. Assumed to be true if the conversation was not read back; the worker checks this.
       */
      head: boolean;
      /** True for a failed turn that is pending again under its old id. */
      resumed: boolean;
      /** True if the outbox may have a new event. */
      announced: boolean;
    }
  | { kind: 'joined'; conversationId: string; turnId: string; messageId: string }
  | { kind: 'replayed'; conversation: KnownConversation; turn: RecentTurn }
  | { kind: 'busy' }
  /** The turn would be new, but `onlyRepeated` allows none. */
  | { kind: 'refused' };

export type NewTurn = {
  key: string;
  /** The id that the conversation gets if this turn creates it. */
  conversationId: string;
  assistantId: string;
  sessionId: string;
  channel: ChannelName;
  turnId: string;
  messageId: string;
  message: string;
  language: string;
  languageBy?: string;
  keyId?: string;
  dedupeKey: string | null;
  /** Whether an `Idempotency-Key` reserved the turn id: `new` by this request, `known` by an earlier one. */
  reservation: 'new' | 'known' | null;
  async: boolean;
  /** The Redis channel of the process that waits for the reply. */
  replyTo: string;
  acceptedAt: Date;
  quick?: PendingTurn['quick'];
  trace?: string;
};

/** The turn as it is stored in `waiting`. */
const toPending = (turn: NewTurn): PendingTurn => ({
  turnId: turn.turnId,
  messageId: turn.messageId,
  message: turn.message,
  language: turn.language,
  ...(turn.languageBy !== undefined && { languageBy: turn.languageBy }),
  ...(turn.keyId !== undefined && { keyId: turn.keyId }),
  ...(turn.dedupeKey !== null && { dedupeKey: turn.dedupeKey }),
  replyTo: [turn.replyTo],
  acceptedAt: turn.acceptedAt,
  ...(turn.async && { async: true }),
  ...(turn.quick && { quick: turn.quick }),
  ...(turn.trace !== undefined && { trace: turn.trace }),
});

/** A message in a long outbox names its turn. */
const shortened = ({ events, pending }: Arrived): ConversationEvent[] =>
  events.map((one) => {
    if (one.event !== 'message.received') return one;
    const { role, language } = one.payload;
    return { event: one.event, payload: { role, turn_id: pending.turnId, language } };
  });

/** The fields of the conversation if this turn creates it. */
const initialConversation = (
  { conversationId, assistantId, sessionId, channel, acceptedAt }: NewTurn,
  { changes }: Arrived,
) => ({ conversationId, assistantId, sessionId, channel, ...changes, headSince: acceptedAt, createdAt: acceptedAt });

/**
 * Matches if no turn with this id or content is pending, and one more turn may be pending. The filter uses only
 * operators that an upsert allows.
 */
const notPendingFilter = ({ turnId, dedupeKey }: NewTurn) => ({
  'waiting.turnId': { $ne: turnId },
  ...(dedupeKey !== null && { 'waiting.dedupeKey': { $ne: dedupeKey } }),
  [`waiting.${MAX_PENDING - 1}`]: { $exists: false },
});

/** Adds the turn to the pending turns and its event to the outbox, in one write. */
const pushTurn = ({ changes, pending }: Arrived, announced: OutboxEvent[]) => ({
  ...updateOf(changes),
  $push: { waiting: pending, ...(announced.length > 0 && { outbox: { $each: announced } }) },
  ...countAnnounced(announced),
  $currentDate: { updatedAt: true },
});

const stampOf = ({ key, acceptedAt: at, trace }: NewTurn) => ({ key, at, trace });

const IS_NEW = { $eq: [{ $type: '$createdAt' }, 'missing'] };
/** A value from outside, which MongoDB must not read as an expression. */
const literal = (value: unknown) => ({ $literal: value });
const append = (list: string, items: unknown[], { ifNew = [] }: { ifNew?: unknown[] } = {}) => ({
  $concatArrays: [{ $cond: [IS_NEW, literal(ifNew), { $ifNull: [list, []] }] }, literal(items)],
});

/** The same counters as `countAnnounced`, for an update that is a pipeline. `created` counts only in a new document. */
const countedAfter = (created: OutboxEvent[], received: OutboxEvent[]) => {
  const [existing, whole] = [countByEndpoint(received), countByEndpoint([...created, ...received])];
  const counters = [...whole].map(([id, ifNew]) => {
    const more = { $cond: [IS_NEW, ifNew, existing.get(id) ?? 0] };
    return [id, { $add: [{ $ifNull: [`$announced.${id}`, 0] }, more] }];
  });
  return { $mergeObjects: ['$announced', Object.fromEntries(counters)] };
};

/**
 * Accepts the turn in one upsert. If the conversation exists but does not match the filter, the upsert fails with a
 * duplicate-key error (docs/design.md, Accept). The update is a pipeline, because only a pipeline can put the created
 * event before the received event in a new document, and add to the list in an existing one. A pipeline costs MongoDB
 * as much as update operators.
 */
export const acceptStatement = (turn: NewTurn, receiversOf: ReceiversOf): UpdateStatement => {
  const pending = toPending(turn);
  const onNew = act.accept(null, pending);
  const onKnown = act.accept({ status: 'open' }, pending); // the same as on an escalated one
  const stored = (events: ConversationEvent[]) => toOutbox(events, receiversOf, stampOf(turn));
  const created = stored(onNew.events.slice(0, -onKnown.events.length));
  const received = stored(onKnown.events);
  const short = stored(shortened(onKnown));
  const changed = {
    ...Object.fromEntries(Object.entries(onKnown.changes).map(([field, value]) => [field, literal(value)])),
    updatedAt: '$$NOW',
    waiting: append('$waiting', [pending]),
    ...((created.length > 0 || received.length > 0) && {
      outbox: { $cond: [IS_LONG, append('$outbox', short), append('$outbox', received, { ifNew: created })] },
      announced: countedAfter(created, received),
    }),
  };
  const ifNew = { $cond: [IS_NEW, literal(initialConversation(turn, onNew)), {}] };
  return {
    q: {
      _id: turn.key,
      ...notPendingFilter(turn),
      'recent.turnId': { $ne: turn.turnId },
      ...(turn.dedupeKey !== null && { 'recent.dedupeKey': { $ne: turn.dedupeKey } }),
      status: { $ne: 'resolved' },
    },
    u: [{ $replaceWith: { $mergeObjects: ['$$ROOT', ifNew, changed] } }],
    upsert: true,
  };
};

/**
 * True if the write of an accepted turn may have added an event to the outbox. It is unknown whether the write created
 * the conversation, so both possible events count.
 */
const mayAnnounce = (receiversOf: ReceiversOf): boolean =>
  receiversOf('message.received').length > 0 || receiversOf('conversation.created').length > 0;

/** A look for an old turn reads whole pages of messages. An assistant has one at a time, and a rest after it. */
const lookingBack = createRestedWork();

type Dependencies = { connection: Connection; update: Update; findDelivered: FindDelivered; history: History };
type Options = AcceptOptions & { receiversOf: ReceiversOf };

/**
 * Decides once about a message that the upsert refused. Returns null if the conversation has changed since it was read:
 * the caller must then read it and try again.
 */
type ResolveDuplicate = (conversation: KnownConversation, turn: NewTurn, options: Options) => Promise<Accepted | null>;

/**
 * Decides what to do with a message that the upsert refused: new turn, duplicate or busy. The decision uses the
 * conversation as it was read. The write is a compare-and-set on that state.
 */
export const createResolveDuplicate = (dependencies: Dependencies): ResolveDuplicate => {
  const { connection, update, findDelivered, history } = dependencies;
  /**
   * Sends a raw command, because the driver would retry an update of its own. If such a retry finds no server, its
   * error looks as if nothing was written, although the first try may be stored.
   */
  const compareAndSet = async (
    { _id, assistantId, conversationId }: KnownConversation,
    q: Record<string, unknown>,
    u: UpdateStatement['u'],
  ): Promise<boolean> => {
    const statement = { q: { _id, conversationId, ...q }, u };
    const { n, writeErrors = [] } = await update([_id, assistantId], () =>
      updateMany(connection, CONVERSATIONS, [statement]),
    );
    if (writeErrors[0]) throw toItemFailure(writeErrors[0]).cause;
    return n === 1;
  };

  /**
   * Joins a pending turn. Nobody waits for the reply of an asynchronous turn, but the write still ensures that the
   * joined turn is durable.
   */
  const join = async (conversation: KnownConversation, turnId: string, { async, replyTo }: NewTurn): Promise<boolean> =>
    compareAndSet(
      conversation,
      { 'waiting.turnId': turnId },
      async ? { $set: { 'waiting.$.async': true } } : { $addToSet: { 'waiting.$.replyTo': replyTo } },
    );

  const asRead = ({ seq, status }: KnownConversation) => ({ seq, status });

  const pushNew = (conversation: KnownConversation, turn: NewTurn, receiversOf: ReceiversOf): Promise<boolean> => {
    const effect = act.accept(conversation, toPending(turn));
    const events = conversation.isLong ? shortened(effect) : effect.events;
    return compareAndSet(
      conversation,
      { ...asRead(conversation), ...notPendingFilter(turn), 'recent.turnId': { $ne: turn.turnId } },
      pushTurn(effect, toOutbox(events, receiversOf, stampOf(turn))),
    );
  };

  /**
   * Appends the failed turn to the pending turns under its old id. Its visitor message keeps its `seq`. No event is
   * announced.
   */
  const pushResumed = (conversation: KnownConversation, failed: RecentTurn, turn: NewTurn): Promise<boolean> => {
    // It is answered alone and at once, because its visitor has waited already.
    const { quick: _quick, ...again } = toPending(turn);
    const pending = { ...again, turnId: failed.turnId, messageId: failed.messageId, seq: failed.seq };
    return compareAndSet(
      conversation,
      {
        ...asRead(conversation),
        ...notPendingFilter({ ...turn, turnId: failed.turnId }),
        // A failed turn that was found in `recent` must still be there. An older turn was found only in `messages`, so
        // it must not be in `recent`.
        ...(conversation.recent.includes(failed)
          ? { recent: { $elemMatch: { turnId: failed.turnId, outcome: 'failed' } } }
          : { 'recent.turnId': { $ne: failed.turnId } }),
      },
      { ...pushTurn(act.resume(conversation, pending), []), $pull: { recent: { turnId: failed.turnId } } },
    );
  };

  const decideOn = async (conversation: KnownConversation, turn: NewTurn, windowMs: number): Promise<Decision> => {
    const { turnId, dedupeKey, key, assistantId } = turn;
    const similar = conversation.recent.filter((known) => known.dedupeKey === dedupeKey && dedupeKey !== null);
    const delivered = await findDelivered(similar.map((known) => ({ key, turnId: known.turnId })));
    const query = { turnId, dedupeKey, reserved: turn.reservation !== null, windowMs, now: serverNow() };
    const decision = decide(conversation, query, (known) => delivered.has(known));
    const longAgo = decision.kind === 'new' && turn.reservation === 'known';
    if (!longAgo) return decision;
    const finished = await lookingBack(assistantId, () => history.findFinishedTurn(conversation, turnId));
    if (!finished) return decision;
    return finished.outcome === 'failed' ? { kind: 'resume', turn: finished } : { kind: 'replay', turn: finished };
  };

  return async (conversation, turn, options) => {
    const { conversationId, waiting } = conversation;
    const decision = await decideOn(conversation, turn, options.windowMs);
    const accepted = (turnId: string, { head = waiting.length === 0, resumed = false } = {}): Accepted => {
      const announced = !resumed && mayAnnounce(options.receiversOf);
      return { kind: 'accepted', conversationId, turnId, head, resumed, announced };
    };
    switch (decision.kind) {
      case 'busy':
        return { kind: 'busy' };
      case 'replay':
        return { kind: 'replayed', conversation, turn: decision.turn };
      case 'own':
        return accepted(turn.turnId, { head: waiting[0]?.turnId === turn.turnId });
      case 'join':
        options.watch(decision.turn.turnId);
        options.span.link(decision.turn.trace);
        return (await join(conversation, decision.turn.turnId, turn))
          ? { kind: 'joined', conversationId, turnId: decision.turn.turnId, messageId: decision.turn.messageId }
          : null;
      case 'resume': {
        const { turnId } = decision.turn;
        options.watch(turnId);
        return (await pushResumed(conversation, decision.turn, turn)) ? accepted(turnId, { resumed: true }) : null;
      }
      case 'new': {
        if (options.onlyRepeated) return { kind: 'refused' };
        return (await pushNew(conversation, turn, options.receiversOf)) ? accepted(turn.turnId) : null;
      }
    }
  };
};

/** If the outcome of an accept is still unknown after this time, the caller gets 500. */
const ACCEPT_DEADLINE_MS = 5_000;
const RETRY_AFTER_MS = 50;

/** How many messages that may repeat another are looked at at once. An assistant gets what stays free, at least one. */
const SINGLE_AT_ONCE = 16;

type Upsert = Pick<AcceptOptions, 'readBack' | 'span'> & { turn: NewTurn; receiversOf: ReceiversOf };
type Upserted = { conversationId: string | null; head: boolean } | null;

type AcceptDependencies = {
  connection: Connection;
  resolveDuplicate: ResolveDuplicate;
  announce: Announce;
  tracing: Tracing;
};

/** Accepts a turn, or finds the turn that this request repeats. */
export type Accept = (turn: NewTurn, options: AcceptOptions) => Promise<Accepted>;

/**
 * Accepts a turn with one atomic upsert, in a batch with other turns. A duplicate-key error means that the conversation
 * exists but did not match the upsert's filter: the turn may be a duplicate, or the session may be busy or resolved. In
 * this case the conversation is read, and a compare-and-set on the state that was read decides (docs/design.md,
 * Accept).
 */
export const createAccept = ({ connection, resolveDuplicate, announce, tracing }: AcceptDependencies): Accept => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  const readPendingTurns = createReader(conversations, { conversationId: 1, 'waiting.turnId': 1 });

  const readBack = ({ key, turnId, conversationId }: NewTurn): Promise<Upserted> =>
    readPendingTurns(key).then(
      // If the conversation is missing, it was erased after the write. The caller will get 404.
      (row) => ({
        conversationId: row?.conversationId ?? conversationId,
        head: row?.waiting[0]?.turnId === turnId,
      }),
      (cause: unknown) => {
        throw new OutcomeUnknown('accepted turns could not be read back', { cause });
      },
    );

  const upsert = createUpdateBatcher(
    conversations,
    async (items: Upsert[]): Promise<(Upserted | ItemFailure)[]> => {
      const statements = items.map(({ turn, receiversOf }) => acceptStatement(turn, receiversOf));
      const { writeErrors = [] } = await within(
        tracing.share(
          'write conversations',
          items.map(({ span }) => span),
        ),
        updateMany(connection, CONVERSATIONS, statements),
      ).catch((cause: unknown) => {
        // If the primary stepped down between two statements of the batch, some turns may be stored. So the outcome of
        // a batch with several turns is unknown.
        throw wasNotPrimary(cause) && items.length > 1 ? new OutcomeUnknown('a batch was refused', { cause }) : cause;
      });
      const errors = new Map(writeErrors.map((error) => [error.index, error]));
      return Promise.all(
        items.map(async ({ turn, readBack: wanted }, index): Promise<Upserted | ItemFailure> => {
          const error = errors.get(index);
          if (error) return error.code === DUPLICATE_KEY ? null : toItemFailure(error);
          return wanted ? readBack(turn) : { conversationId: null, head: true };
        }),
      );
    },
    { documentOf: ({ turn }) => [turn.key, turn.assistantId], lengthOf: ({ turn }) => turn.message.length },
  );

  const read = (key: string) => conversations.findOne<KnownConversation>({ _id: key }, { projection: KNOWN });

  const singles = createSlots(oneAtLeast(SINGLE_AT_ONCE));

  const tryOnce = async (turn: NewTurn, receiversOf: ReceiversOf, options: AcceptOptions): Promise<Accepted | null> => {
    // If the idempotency key is already known, its turn may no longer be in `recent`. The upsert's filter would not
    // find such a turn, so the conversation is read first.
    const { onlyRepeated = false, readBack: wanted, span } = options;
    const known =
      turn.reservation === 'known' || onlyRepeated
        ? await workInSlot(singles, turn.assistantId, () => read(turn.key))
        : null;
    if (onlyRepeated && !known) return { kind: 'refused' };
    const upserted = known ? null : await upsert({ turn, receiversOf, readBack: wanted, span });
    if (upserted) {
      const announced = mayAnnounce(receiversOf);
      return { kind: 'accepted', ...upserted, turnId: turn.turnId, resumed: false, announced };
    }
    return workInSlot(singles, turn.assistantId, async () => {
      const conversation = known ?? (await read(turn.key));
      return conversation && resolveDuplicate(conversation, turn, { ...options, receiversOf });
    });
  };

  /**
   * Accepts a turn before the deadline. Throws 503 only if the turn was certainly not accepted. If the outcome is
   * unknown, tries again until the deadline, then throws 500.
   */
  const acceptInTime = async (turn: NewTurn, receiversOf: ReceiversOf, options: AcceptOptions): Promise<Accepted> => {
    const deadline = performance.now() + ACCEPT_DEADLINE_MS;
    let outcomeUnknown = false;
    for (let own = turn; ; ) {
      try {
        const accepted = await tryOnce(own, receiversOf, options);
        if (accepted) return accepted;
      } catch (cause) {
        const refused = wasNotPrimary(cause) || wasNeverSent(cause) || wasRefused(cause);
        if (refused && !outcomeUnknown) throw unavailable(cause);
        if (!isMongoUnavailable(cause)) throw cause;
        outcomeUnknown = true;
        // What is stored may be erased by now. An erased id is purged again, so it must not come back.
        own = { ...turn, conversationId: newPrefixedId(turn.key) };
        await sleep(RETRY_AFTER_MS);
      }
      if (performance.now() > deadline) throw new ApiError('internal_error');
    }
  };

  return (turn, options) => {
    const { key: _id, assistantId, channel } = turn;
    return announce({ _id, assistantId, channel }, (receiversOf) => acceptInTime(turn, receiversOf, options));
  };
};
