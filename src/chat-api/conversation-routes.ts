import { setTimeout as sleep } from 'node:timers/promises';
import type { Request, RequestHandler, Response, Router } from 'express';
import { type Access, callerOf } from '../assistants/access.ts';
import { createPublicRouter } from '../assistants/operation.ts';
import { createTimeCursor } from '../platform/cursor.ts';
import { notFound } from '../platform/errors.ts';
import { conversationKeyOf } from '../platform/ids.ts';
import type { BeforeWriting } from '../platform/mongo-silence.ts';
import { answerWith, bodyOf, queryOf } from '../platform/operation.ts';
import { toAttributesView } from '../conversations/attributes.ts';
import { toEscalationView, toHistoryView, toListView } from '../conversations/view.ts';
import type { StoredConversation } from '../conversations/conversation.ts';
import { historyCursor } from '../conversations/history.ts';
import { conversationOperations } from './conversation-operations.ts';
import type { ConversationStore } from '../conversations/store.ts';

const LOOK_EVERY_MS = 200;

const listCursor = createTimeCursor(/^[0-9a-f]{32}$/);

type Dependencies = {
  access: Access;
  conversations: ConversationStore;
  /** Tells the callers who wait for a reply in this conversation that no reply will come. */
  onErased: (conversation: StoredConversation) => void;
  /** Ends long polls when the process drains. */
  draining: AbortSignal;
  beforeWriting: BeforeWriting;
};

/** The conversation endpoints (docs/contract.md, Conversations). */
export const conversationRoutes = ({
  access,
  conversations,
  onErased,
  draining,
  beforeWriting,
}: Dependencies): Router => {
  const getOwn = async (req: Request, res: Response): Promise<StoredConversation> => {
    const found = await beforeWriting(
      conversations.findById(String(req.params.id), callerOf(res).assistant.assistantId),
    );
    if (!found) throw notFound();
    return found;
  };

  /**
   * Waits until the conversation has a message with a number above `afterSeq`, the time is up, or the caller has
   * disconnected.
   */
  const waitForNewer = async (
    read: StoredConversation,
    { afterSeq, waitMs, res }: { afterSeq: number; waitMs: number; res: Response },
  ): Promise<StoredConversation> => {
    const until = performance.now() + waitMs;
    const { _id: key, conversationId } = read;
    let seq: number | null = read.seq;
    while (seq !== null && seq <= afterSeq && performance.now() < until && !res.destroyed && !draining.aborted) {
      await sleep(LOOK_EVERY_MS, undefined, { signal: draining }).catch(() => undefined);
      seq = await conversations.findSeq({ key, conversationId });
    }
    // The conversation is always read again, because status and tags can change without a new number.
    const now = await conversations.findById(conversationId);
    if (!now) throw notFound();
    return now;
  };

  const readHistory: RequestHandler = async (req, res) => {
    const { limit, cursor, after_seq, wait = 0 } = queryOf(conversationOperations.get, req);
    const position = cursor === undefined ? undefined : historyCursor.decode(cursor);
    const read = await getOwn(req, res);
    const newerOnly = after_seq !== undefined;
    const conversation = newerOnly ? await waitForNewer(read, { afterSeq: after_seq, waitMs: wait * 1000, res }) : read;
    const from =
      position ?? (newerOnly ? { seq: after_seq, index: Number.MAX_SAFE_INTEGER, waitingAfter: null } : undefined);
    const page = await conversations.history.readPage(conversation, {
      ...(from && { from }),
      ...(limit !== undefined && { limit }),
      finalOnly: newerOnly,
    });
    const next = page.next && historyCursor.encode(page.next);
    answerWith(conversationOperations.get, res, toHistoryView(conversation, page, next));
  };

  const list: RequestHandler = async (req, res) => {
    const { session_id, updated_after, limit, cursor } = queryOf(conversationOperations.list, req);
    const { assistantId, sessionKey } = callerOf(res).assistant;
    const { conversations: rows, next } = await conversations.list({
      assistantId,
      ...(session_id !== undefined && {
        key: conversationKeyOf({ sessionKey, sessionId: session_id, playground: false }),
      }),
      ...(updated_after !== undefined && { updatedAfter: new Date(updated_after) }),
      ...(limit !== undefined && { limit }),
      ...(cursor !== undefined && { after: listCursor.decode(cursor) }),
    });
    answerWith(conversationOperations.list, res, toListView(rows, next && listCursor.encode(next)));
  };

  const escalate: RequestHandler = async (req, res) => {
    const { assistantId } = callerOf(res).assistant;
    // Checked before the body, so that the conversation of another assistant gives 404 whatever the body contains.
    await getOwn(req, res);
    const { reason, lead_score } = bodyOf(conversationOperations.escalate, req);
    const { conversation } = await conversations.transitions.escalate(
      { conversationId: String(req.params.id), assistantId },
      { ...(reason != null && { reason }), ...(lead_score != null && { leadScore: lead_score }) },
    );
    answerWith(conversationOperations.escalate, res, toEscalationView(conversation));
  };

  const setAttributes: RequestHandler = async (req, res) => {
    const { assistantId } = callerOf(res).assistant;
    await getOwn(req, res); // first, as for `escalate`
    const { conversation } = await conversations.transitions.setAttributes(
      { conversationId: String(req.params.id), assistantId },
      bodyOf(conversationOperations.setAttributes, req),
    );
    const { conversationId, attributes } = conversation;
    answerWith(conversationOperations.setAttributes, res, { conversationId, attributes: toAttributesView(attributes) });
  };

  const erase: RequestHandler = async (req, res) => {
    const { erased, purged } = await conversations.erase(await getOwn(req, res));
    if (erased) onErased(erased);
    await purged;
    res.status(204).end();
  };

  return createPublicRouter(access, [
    { operation: conversationOperations.list, handle: list },
    { operation: conversationOperations.get, handle: readHistory },
    { operation: conversationOperations.erase, handle: erase },
    { operation: conversationOperations.escalate, handle: escalate },
    { operation: conversationOperations.setAttributes, handle: setAttributes },
  ]);
};
