import { setTimeout as sleep } from 'node:timers/promises';
import type { Request, RequestHandler, Response, Router } from 'express';
import { type Access, callerOf } from '../assistants/access.ts';
import { createPublicRouter } from '../assistants/operation.ts';
import { createTimeCursor } from '../http/cursor.ts';
import { ApiError, notFound } from '../process/errors.ts';
import { conversationKeyOf } from '../process/ids.ts';
import type { OrUnavailable } from '../mongo/silence.ts';
import { answerWith, answerWithList, bodyOf, queryOf } from '../http/operation.ts';
import { buildAnswer, holderOf, takeRoomForAnswer } from '../http/shares.ts';
import { toAttributesView } from '../conversations/attributes.ts';
import { toEscalationView, toHistoryView, toListView } from '../conversations/view.ts';
import type { StoredConversation } from '../conversations/conversation.ts';
import { historyCursor } from '../conversations/history.ts';
import { chatConversationOperations } from './conversation-operations.ts';
import type { ConversationHead, ConversationStore } from '../conversations/store.ts';

const LOOK_EVERY_MS = 200;
/** How many long polls of one assistant’s keys may wait in this process. */
const POLLS_MAX = 200;

const listCursor = createTimeCursor(/^[0-9a-f]{32}$/);

type Dependencies = {
  access: Access;
  conversations: ConversationStore;
  /** Tells the callers who wait for a reply in this conversation that no reply will come. */
  onErased: (conversation: StoredConversation) => void;
  /** Ends long polls when the process drains. */
  draining: AbortSignal;
  orUnavailable: OrUnavailable;
};

/** The conversation endpoints (docs/contract.md, Conversations). */
export const chatConversationRoutes = ({
  access,
  conversations,
  onErased,
  draining,
  orUnavailable,
}: Dependencies): Router => {
  const getOwn = async (req: Request, res: Response): Promise<StoredConversation> => {
    const found = await orUnavailable(
      conversations.findById(String(req.params.id), callerOf(res).assistant.assistantId),
    );
    if (!found) throw notFound();
    return found;
  };

  /** The long polls that wait, by their holder. */
  const polls = new Map<string, number>();

  /**
   * Waits until the conversation has a message with a number above `afterSeq`, the time is up, or the caller has
   * disconnected. Only the number is read. A poll above the limit of its holder is refused, because each one is a read
   * every 200 ms.
   */
  const waitForNewer = async (
    { _id: key, conversationId, seq: known }: ConversationHead,
    { afterSeq, waitMs, req, res }: { afterSeq: number; waitMs: number; req: Request; res: Response },
  ): Promise<void> => {
    const until = performance.now() + waitMs;
    const isOver = (): boolean => performance.now() >= until || res.destroyed || res.writableEnded || draining.aborted;
    let seq: number | null = known;
    const holder = holderOf(req, res);
    const others = polls.get(holder) ?? 0;
    if (others >= POLLS_MAX) throw new ApiError('rate_limited', { headers: { 'Retry-After': '1' } });
    polls.set(holder, others + 1);
    try {
      while (seq !== null && seq <= afterSeq && !isOver()) {
        await sleep(LOOK_EVERY_MS, undefined, { signal: draining }).catch(() => undefined);
        if (!res.destroyed) seq = await conversations.findSeq({ key, conversationId });
      }
    } finally {
      const left = (polls.get(holder) ?? 1) - 1;
      if (left === 0) polls.delete(holder);
      else polls.set(holder, left);
    }
  };

  const readHistory: RequestHandler = async (req, res) => {
    const { limit, cursor, after_seq, wait = 0, include } = queryOf(chatConversationOperations.get, req);
    const position = cursor === undefined ? undefined : historyCursor.decode(cursor);
    const newerOnly = after_seq !== undefined;
    if (newerOnly && wait > 0) {
      const { assistantId } = callerOf(res).assistant;
      const head = await orUnavailable(conversations.findHead(String(req.params.id), assistantId));
      if (!head) throw notFound();
      await waitForNewer(head, { afterSeq: after_seq, waitMs: wait * 1000, req, res });
    }
    await takeRoomForAnswer(req, res);
    await buildAnswer(req, res, async () => {
      // The conversation is read after the wait, because status and tags can change without a new number.
      const conversation = await getOwn(req, res);
      const from =
        position ?? (newerOnly ? { seq: after_seq, index: Number.MAX_SAFE_INTEGER, waitingAfter: null } : undefined);
      const page = await conversations.history.readPage(conversation, {
        ...(from && { from }),
        ...(limit !== undefined && { limit }),
        finalOnly: newerOnly,
      });
      const next = page.next && historyCursor.encode(page.next);
      const view = toHistoryView(conversation, page, { nextCursor: next, withSources: include === 'sources' });
      await answerWithList(chatConversationOperations.get, res, view, { list: 'messages', bytes: page.bytes });
    });
  };

  const list: RequestHandler = async (req, res) => {
    const { session_id, updated_after, limit, cursor } = queryOf(chatConversationOperations.list, req);
    await takeRoomForAnswer(req, res);
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
    answerWith(chatConversationOperations.list, res, toListView(rows, next && listCursor.encode(next)));
  };

  const escalate: RequestHandler = async (req, res) => {
    const { assistantId } = callerOf(res).assistant;
    // Checked before the body, so that the conversation of another assistant gives 404 whatever the body contains.
    await getOwn(req, res);
    const { reason, lead_score } = bodyOf(chatConversationOperations.escalate, req);
    const { conversation } = await conversations.transitions.escalate(
      { conversationId: String(req.params.id), assistantId },
      { ...(reason != null && { reason }), ...(lead_score != null && { leadScore: lead_score }) },
    );
    answerWith(chatConversationOperations.escalate, res, toEscalationView(conversation));
  };

  const setAttributes: RequestHandler = async (req, res) => {
    const { assistantId } = callerOf(res).assistant;
    await getOwn(req, res); // first, as for `escalate`
    const { conversation } = await conversations.transitions.setAttributes(
      { conversationId: String(req.params.id), assistantId },
      bodyOf(chatConversationOperations.setAttributes, req),
    );
    const { conversationId, attributes } = conversation;
    answerWith(chatConversationOperations.setAttributes, res, {
      conversationId,
      attributes: toAttributesView(attributes),
    });
  };

  const erase: RequestHandler = async (req, res) => {
    const { erased, purged } = await conversations.erase(await getOwn(req, res));
    if (erased) onErased(erased);
    await purged;
    res.status(204).end();
  };

  return createPublicRouter(access, [
    { operation: chatConversationOperations.list, handle: list },
    { operation: chatConversationOperations.get, handle: readHistory },
    { operation: chatConversationOperations.erase, handle: erase },
    { operation: chatConversationOperations.escalate, handle: escalate },
    { operation: chatConversationOperations.setAttributes, handle: setAttributes },
  ]);
};
