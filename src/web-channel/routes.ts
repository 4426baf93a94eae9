import { type Request, type RequestHandler, type Response, Router } from 'express';
import { nextOpening } from '../assistants/opening-hours.ts';
import type { RateLimiter } from '../assistants/rate-limit.ts';
import type { AssistantStore } from '../assistants/store.ts';
import { isSignedBy } from '../assistants/settings.ts';
import type { StoredConversation } from '../conversations/conversation.ts';
import { afterSeq, type NumberedMessage } from '../conversations/history.ts';
import type { ConversationStore } from '../conversations/store.ts';
import {
  answerWith,
  answerWithList,
  bodyOf,
  bodyReader,
  mount,
  queryOf,
  type Served,
} from '../platform/http/operation.ts';
import { buildAnswer, createRestedWork, signalOf, takeRoomForAnswer } from '../platform/http/request-slots.ts';
import { holderOf } from '../platform/http/shares.ts';
import type { OrUnavailable } from '../platform/mongo/silence.ts';
import { serverDate } from '../platform/process/clock.ts';
import { ApiError, invalid, notFound } from '../platform/process/errors.ts';
import type { Vault } from '../platform/process/vault.ts';
import type { Gate } from '../turns/gate.ts';
import { quotasOf } from '../turns/allowances.ts';
import type { Submit, TurnRequest } from '../turns/start-turn.ts';
import { wantsStream } from '../turns/http/turn-routes.ts';
import type { StreamTurn } from '../turns/stream.ts';
import { IdempotencyKey } from '../turns/turn.ts';
import { assistantOf, createWaitForNews, createWebAccess, startAnonymous, startSignedIn, visitorOf } from './access.ts';
import { type WebOperation, webOperations, type WebSession } from './operations.ts';

/** An answer has the messages of at most this many numbers (`seq`). */
const ENTRIES_MAX = 50;

/**
 * So many bytes of messages in a millisecond may the visitors of a network read. A visitor may fill its conversation with
 * long messages, and each read of them costs the loop as much as ten turns.
 */
const READ_BYTES_PER_MS = 2_000;

const ROLES = { user: 'visitor', assistant: 'assistant', operator: 'person' } as const;

/** What a visitor sees of a message. System messages are for operators. */
const toMessages = (message: NumberedMessage): WebSession['messages'] => {
  const { messageId, turnId, seq, role, content, suggestedActions = [], createdAt } = message;
  if (role === 'system') return [];
  const actions = suggestedActions.length > 0 && { suggestedActions };
  return [{ messageId, turnId, seq, role: ROLES[role], content, ...actions, createdAt }];
};

export const WEB_TURN_PATH = webOperations.send.path;

type Dependencies = {
  assistants: Pick<AssistantStore, 'findAssistant'>;
  conversations: ConversationStore;
  rateLimiter: RateLimiter;
  vault: Vault;
  gate: Gate;
  submit: Submit;
  streamTurn: StreamTurn;
  publicUrl: string | undefined;
  /** Ends waiting reads when the process drains. */
  draining: AbortSignal;
  orUnavailable: OrUnavailable;
};

/** What the widget and the hosted page call (docs/contract.md, Web channel). */
export const webChannelRoutes = (dependencies: Dependencies): Router => {
  const { conversations, rateLimiter, vault, gate, submit, streamTurn, draining, orUnavailable } = dependencies;
  const access = createWebAccess(dependencies);
  const waitForNews = createWaitForNews({ find: conversations.findOfSession, draining });
  const rested = createRestedWork<number>((_ms, bytes = 0) => bytes / READ_BYTES_PER_MS);

  const settings: RequestHandler = (_req, res) => {
    const { name, web } = assistantOf(res);
    const { title, greeting, starters, accent, theme, side } = web;
    res.set('Cache-Control', 'public, max-age=60');
    answerWith(webOperations.settings, res, { title: title || name, greeting, starters, accent, theme, side });
  };

  const start: RequestHandler = async (req, res) => {
    const { user } = bodyOf(webOperations.start, req);
    const assistant = assistantOf(res);
    if (!user) return answerWith(webOperations.start, res, startAnonymous(assistant));
    const { assistantId, web } = assistant;
    if (!web.identity || !isSignedBy(user, { vault, assistantId, identity: web.identity }))
      return access.refuse(req, new ApiError('invalid_user_signature'));
    answerWith(webOperations.start, res, startSignedIn(assistant, { userId: user.id, identityId: web.identity.id }));
  };

  const turnOf = (req: Request, res: Response): TurnRequest => {
    const assistant = assistantOf(res);
    const { message, language = null } = bodyOf(webOperations.send, req);
    const key = IdempotencyKey.nullable().safeParse(req.get('Idempotency-Key') ?? null);
    if (!key.success) throw invalid('Idempotency-Key', 'invalid', 'must be 1–255 visible ASCII characters');
    const { assistantId } = assistant;
    return {
      assistant,
      channel: 'web',
      sessionId: visitorOf(res).sessionId,
      message,
      language,
      // The prefix keeps these keys apart from those of the assistant's other channels.
      idempotencyKey: key.data && `web:${visitorOf(res).key}:${key.data}`,
      quotas: quotasOf(assistant, null),
      pass: async (conversationKey) => {
        await rateLimiter.forVisitor(conversationKey, assistant.sessionLimitPerMinute);
        return gate.pass({ assistantId, keyId: null, bytes: 2 * message.length, req, res });
      },
    };
  };

  const send: RequestHandler = async (req, res) => {
    if (wantsStream(req)) return streamTurn(turnOf(req, res), req, res);
    const { response, replayed, delivered } = await submit(turnOf(req, res));
    if (replayed) res.set('Idempotent-Replayed', 'true');
    res.on('finish', delivered);
    answerWith(webOperations.send, res, response);
  };

  /** All messages whose numbers are above `from` and up to `to`. A page of long messages is read in parts. */
  const readBetween = async (
    conversation: StoredConversation,
    { from, to, finalOnly }: { from: number; to: number; finalOnly: boolean },
  ): Promise<{ messages: NumberedMessage[]; bytes: number }> => {
    const messages: NumberedMessage[] = [];
    let bytes = 0;
    let at = afterSeq(from);
    for (;;) {
      const page = await conversations.history.readPage(conversation, {
        from: at,
        limit: 2 * ENTRIES_MAX,
        finalOnly,
      });
      messages.push(...page.messages.filter(({ seq }) => seq === null || seq <= to));
      bytes += page.bytes;
      const last = page.messages.at(-1)?.seq ?? null;
      if (!page.next || (last !== null && last > to)) return { messages, bytes };
      at = page.next;
    }
  };

  type Session = { key: string; assistantId: string; opensAt: Date | null };

  /** Answers with the messages that the query asks for. Resolves with their bytes. */
  const answerRead = async (req: Request, res: Response, { key, assistantId, opensAt }: Session): Promise<number> => {
    const { after, before } = queryOf(webOperations.read, req);
    const head = await orUnavailable(conversations.findOfSession(key, assistantId));
    const conversation = head && (await orUnavailable(conversations.findById(head.conversationId, assistantId)));
    if (!conversation) {
      const none = { conversationId: null, status: 'open' as const, messages: [], hasMore: false, hasEarlier: false };
      answerWith(webOperations.read, res, { ...none, opensAt, seq: 0 });
      return 0;
    }
    const last = before === undefined ? conversation.seq : Math.min(Math.max(0, before - 1), conversation.seq);
    const from = Math.max(0, after ?? last - ENTRIES_MAX);
    const to = after === undefined ? last : Math.min(last, from + ENTRIES_MAX);
    const hasMore = before === undefined && to < conversation.seq;
    const { messages, bytes } =
      to > from || before === undefined
        ? await readBetween(conversation, { from, to, finalOnly: hasMore || before !== undefined })
        : { messages: [], bytes: 0 };
    const view = {
      conversationId: conversation.conversationId,
      status: conversation.status,
      opensAt,
      messages: messages.flatMap(toMessages),
      seq: to,
      hasMore,
      hasEarlier: from > 0,
    };
    await answerWithList(webOperations.read, res, view, { list: 'messages', bytes });
    return bytes;
  };

  const read: RequestHandler = async (req, res) => {
    const { after, status, wait = 0 } = queryOf(webOperations.read, req);
    const { assistantId, openingHours } = assistantOf(res);
    const { key } = visitorOf(res);
    if (after !== undefined && wait > 0)
      await waitForNews({ key, assistantId }, { after, status, waitMs: wait * 1000, res });
    await rested(
      holderOf(req, res),
      async () => {
        await takeRoomForAnswer(req, res);
        const opensAt = nextOpening(openingHours, serverDate());
        return buildAnswer(req, res, () => answerRead(req, res, { key, assistantId, opensAt }));
      },
      signalOf(res),
    );
  };

  const escalate: RequestHandler = async (req, res) => {
    const { reason } = bodyOf(webOperations.escalate, req);
    const { assistantId } = assistantOf(res);
    const head = await orUnavailable(conversations.findOfSession(visitorOf(res).key, assistantId));
    if (!head) throw notFound();
    const { conversation } = await conversations.transitions.escalate(
      { conversationId: head.conversationId, assistantId },
      { reason: reason ?? 'user_requested' },
    );
    answerWith(webOperations.escalate, res, {
      conversationId: conversation.conversationId,
      status: conversation.status,
    });
  };

  const router = Router({ caseSensitive: true });
  router.use('/api/v1/web/:assistant_id', access.fromAllowedOrigin);
  const served = (
    [
      [webOperations.settings, settings],
      [webOperations.start, start],
      [webOperations.send, send],
      [webOperations.read, read],
      [webOperations.escalate, escalate],
    ] as [WebOperation, RequestHandler][]
  ).map(([operation, handle]): Served => {
    return { operation, handlers: [access.admit(operation), ...bodyReader(operation), handle] };
  });
  mount(router, served);
  return router;
};
