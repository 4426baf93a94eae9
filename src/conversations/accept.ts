import { setTimeout as sleep } from 'node:timers/promises';
import type { Connection } from 'mongoose';
import type { ItemFailure } from '../platform/batch.ts';
import { ApiError, unavailable } from '../platform/errors.ts';
import { collectionOf, createReader, createStoreBatcher, updateMany } from '../platform/mongo.ts';
import {
  DUPLICATE_KEY,
  isMongoUnavailable,
  OutcomeUnknown,
  toItemFailure,
  wasNeverSent,
  wasNotPrimary,
  wasRefused,
} from '../platform/mongo-failures.ts';
import type { Accepted, AcceptOptions } from './accepted.ts';
import type { Announce, ReceiversOf } from './announce.ts';
import { conversationModels, type StoredConversation } from './conversation.ts';
import { acceptStatement, mayAnnounce, type NewTurn } from './new-turn.ts';
import type { ResolveDuplicate } from './resolve-duplicate.ts';

/** If the outcome of an accept is still unknown after this time, the caller gets 500. */
const ACCEPT_DEADLINE_MS = 5_000;
const RETRY_AFTER_MS = 50;

type Upsert = Pick<AcceptOptions, 'readBack'> & { turn: NewTurn; receiversOf: ReceiversOf };
type Upserted = { conversationId: string | null; head: boolean } | null;

type Dependencies = { connection: Connection; resolveDuplicate: ResolveDuplicate; announce: Announce };

/**
 * Accepts a turn with one atomic upsert, in a batch with other turns. A duplicate-key error means that the conversation
 * exists but did not match the upsert's filter: the turn may be a duplicate, or the session may be busy or resolved. In
 * this case the conversation is read, and a compare-and-set on the state that was read decides (docs/design.md,
 * Accept).
 */
export const createAccept = ({ connection, resolveDuplicate, announce }: Dependencies) => {
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

  const upsert = createStoreBatcher<Upsert, Upserted>(
    async (items) => {
      const { writeErrors = [] } = await updateMany(
        connection,
        'conversations',
        items.map(({ turn, receiversOf }) => acceptStatement(turn, receiversOf)),
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
    { lengthOf: ({ turn }) => turn.message.length },
  );

  const tryOnce = async (turn: NewTurn, receiversOf: ReceiversOf, options: AcceptOptions): Promise<Accepted | null> => {
    const read = () => conversations.findOne({ _id: turn.key });
    // If the idempotency key is already known, its turn may no longer be in `recent`. The upsert's filter would not
    // find such a turn, so the conversation is read first.
    const known = turn.reservation === 'known' ? await read() : null;
    const upserted = known ? null : await upsert({ turn, receiversOf, readBack: options.readBack });
    if (upserted) {
      const announced = mayAnnounce(receiversOf);
      return { kind: 'accepted', ...upserted, turnId: turn.turnId, resumed: false, announced };
    }
    const conversation = known ?? (await read());
    return conversation && resolveDuplicate(conversation, turn, { ...options, receiversOf });
  };

  /**
   * Accepts a turn before the deadline. Throws 503 only if the turn was certainly not accepted. If the outcome is
   * unknown, tries again until the deadline, then throws 500.
   */
  const acceptInTime = async (turn: NewTurn, receiversOf: ReceiversOf, options: AcceptOptions): Promise<Accepted> => {
    const deadline = performance.now() + ACCEPT_DEADLINE_MS;
    let outcomeUnknown = false;
    for (;;) {
      try {
        const accepted = await tryOnce(turn, receiversOf, options);
        if (accepted) return accepted;
      } catch (cause) {
        const refused = wasNotPrimary(cause) || wasNeverSent(cause) || wasRefused(cause);
        if (refused && !outcomeUnknown) throw unavailable(cause);
        if (!isMongoUnavailable(cause)) throw cause;
        outcomeUnknown = true;
        await sleep(RETRY_AFTER_MS);
      }
      if (performance.now() > deadline) throw new ApiError('internal_error');
    }
  };

  /** Accepts a turn, or finds the turn that this request repeats. */
  return (turn: NewTurn, options: AcceptOptions): Promise<Accepted> => {
    const { key: _id, assistantId, channel } = turn;
    return announce({ _id, assistantId, channel }, (receiversOf) => acceptInTime(turn, receiversOf, options));
  };
};

export type Accept = ReturnType<typeof createAccept>;
