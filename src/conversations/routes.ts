import { setTimeout as sleep } from 'node:timers/promises';
import { type Request, type RequestHandler, type Response, Router } from 'express';
import * as z from 'zod';
import { type Access, callerOf } from '../assistants/access.ts';
import { createTimeCursor, cursor } from '../platform/cursor.ts';
import { notFound } from '../platform/errors.ts';
import { methodNotAllowed } from '../platform/http.ts';
import { conversationKeyOf } from '../platform/ids.ts';
import { jsonBody } from '../platform/json-body.ts';
import type { BeforeWriting } from '../platform/mongo-silence.ts';
import { validate } from '../platform/validation.ts';
import { wholeNumber } from '../platform/whole-number.ts';
import { toEscalationView, toHistoryView, toListView } from './view.ts';
import type { StoredConversation } from './conversation.ts';
import { HISTORY_MAX, historyCursor } from './history.ts';
import type { ConversationStore } from './store.ts';

const LOOK_EVERY_MS = 200;

export const HistoryQuery = z.object({
  limit: wholeNumber(1, HISTORY_MAX).optional(),
  cursor: cursor.optional(),
  after_seq: wholeNumber(0, Number.MAX_SAFE_INTEGER).optional(),
  wait: wholeNumber(0, 25).optional(),
});

export const ListQuery = z.object({
  session_id: z.string().min(1).optional(),
  updated_after: z.iso.datetime({ offset: true }).optional(),
  limit: wholeNumber(1, 100).optional(),
  cursor: cursor.optional(),
});

export const EscalateRequest = z
  .object({
    reason: z
      .string()
      .refine((value) => value.isWellFormed() && !value.includes('\0'), 'must be well-formed Unicode')
      .refine((value) => value.trim() !== '' && [...value].length <= 500, 'must be 1–500 characters')
      .meta({ description: '`manual` when omitted.', minLength: 1, maxLength: 500 })
      .nullish(),
    lead_score: z.number().min(0).max(100).nullish(),
  })
  .meta({ id: 'EscalateRequest' });

const listCursor = createTimeCursor(/^[0-9a-f]{32}$/);

type Dependencies = {
  access: Access;
  conversations: ConversationStore;
  /** Tells those who wait for an answer of it that there will be none. */
  onErased: (conversation: StoredConversation) => void;
  /** Ends long polls when the process drains. */
  draining: AbortSignal;
  beforeWriting: BeforeWriting;
};

/** The conversation endpoints of contract §4. */
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

  /** Waits until the conversation has a number above `afterSeq`, the time is up, or the caller has gone. */
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
    // Read again in any case: status and tags change without a number.
    const now = await conversations.findById(conversationId);
    if (!now) throw notFound();
    return now;
  };

  const readHistory: RequestHandler = async (req, res) => {
    const { limit, cursor, after_seq, wait = 0 } = validate(HistoryQuery, req.query);
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
    res.json(toHistoryView(conversation, page, page.next && historyCursor.encode(page.next)));
  };

  const list: RequestHandler = async (req, res) => {
    const { session_id, updated_after, limit, cursor } = validate(ListQuery, req.query);
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
    res.json(toListView(rows, next && listCursor.encode(next)));
  };

  const escalate: RequestHandler = async (req, res) => {
    const { assistantId } = callerOf(res).assistant;
    // Another's conversation is 404 whatever the body says.
    await getOwn(req, res);
    const { reason, lead_score } = validate(EscalateRequest, req.body);
    const { conversation } = await conversations.transitions.escalate(
      { conversationId: String(req.params.id), assistantId },
      { ...(reason != null && { reason }), ...(lead_score != null && { leadScore: lead_score }) },
    );
    res.json(toEscalationView(conversation));
  };

  const erase: RequestHandler = async (req, res) => {
    const { erased, purged } = await conversations.erase(await getOwn(req, res));
    if (erased) onErased(erased);
    await purged;
    res.status(204).end();
  };

  const router = Router({ caseSensitive: true });
  const { byApiKey, byApiKeyOrPoll } = access;
  router.route('/api/v1/conversations').get(byApiKey, list).all(methodNotAllowed('GET', 'HEAD'));
  router
    .route('/api/v1/conversations/:id')
    .get(byApiKeyOrPoll, readHistory)
    .delete(byApiKey, erase)
    .all(methodNotAllowed('GET', 'HEAD', 'DELETE'));
  router
    .route('/api/v1/conversations/:id/escalate')
    .post(byApiKey, jsonBody({ optional: true }), escalate)
    .all(methodNotAllowed('POST'));
  return router;
};
