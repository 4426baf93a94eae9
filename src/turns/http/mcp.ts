import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { McpHttpHandler, McpServer } from '@modelcontextprotocol/server';
import { type Request, type RequestHandler, type Response, Router } from 'express';
import * as z from 'zod';
import { type Access, callerOf, takeTurn, working } from '../../assistants/access.ts';
import type { KnowledgeStore } from '../../assistants/knowledge/store.ts';
import { rankKnowledge } from '../../assistants/knowledge/search.ts';
import { LanguageTag } from '../../assistants/knowledge/entry.ts';
import { afterSeq } from '../../conversations/history.ts';
import type { ConversationStore } from '../../conversations/store.ts';
import { toEscalationView, toHistoryView } from '../../conversations/view.ts';
import { methodNotAllowed } from '../../platform/http/http.ts';
import { jsonBody } from '../../platform/http/json-body.ts';
import {
  buildAnswer,
  createRestedWork,
  inSlot,
  signalOf,
  takeRoomForAnswer,
} from '../../platform/http/request-slots.ts';
import type { OrUnavailable } from '../../platform/mongo/silence.ts';
import { ApiError, notFound } from '../../platform/process/errors.ts';
import { VERSION } from '../../platform/process/lifecycle.ts';
import { createPacedSlots } from '../../platform/process/paced-slots.ts';
import { oneEach } from '../../platform/process/slots.ts';
import type { Submit } from '../start-turn.ts';
import { ChatResponse, MessageText, SessionId } from '../turn.ts';
import { EscalateRequest } from '../../conversations/http.ts';
import type { GatedTurn } from './turn-routes.ts';

/**
 * The assistant of an API key for programs that speak the Model Context Protocol (docs/contract.md, MCP). Each request
 * is whole in itself, so any API process answers any of them.
 */

export const MCP_PATH = '/mcp';

const MESSAGES_READ = 50;
const ENTRIES_FOUND = 10;

const Conversation = z.object({ conversation_id: z.uuid().meta({ description: 'As `ask` answered it.' }) });

const ASK = {
  title: 'Ask the assistant',
  description:
    'Sends a message to the assistant and returns its reply. The same session_id continues the conversation. It is safe to ask ' +
    'again after an error: the message is stored and answered once.',
  inputSchema: z.object({
    session_id: SessionId,
    message: MessageText.meta({ description: 'What to ask.' }),
    language: LanguageTag.optional().meta({ description: 'BCP 47 tag of the message; detected when omitted.' }),
  }),
  outputSchema: ChatResponse,
};

const SEARCH = {
  title: 'Search the knowledge',
  description:
    'Finds the questions and answers of the business that have most words of the query, the best first. They are searched by ' +
    'words only, and websites and files are not: `ask` knows more.',
  annotations: { readOnlyHint: true },
  inputSchema: z.object({ query: MessageText, limit: z.int().min(1).max(ENTRIES_FOUND).optional() }),
  outputSchema: z.object({
    entries: z.array(z.object({ question: z.string(), answer: z.string(), language: z.string().nullable() })),
  }),
};

const READ = {
  title: 'Read a conversation',
  description: `Reads a conversation with its first ${MESSAGES_READ} messages, or with those after \`after_seq\`.`,
  annotations: { readOnlyHint: true },
  inputSchema: Conversation.extend({ after_seq: z.int().min(0).optional() }),
};

const ESCALATE = {
  title: 'Hand a conversation to a person',
  description: 'A person of the business takes the conversation over, and the assistant falls silent.',
  inputSchema: Conversation.extend({ reason: EscalateRequest.shape.reason }),
};

type Dependencies = {
  access: Access;
  gatedTurn: GatedTurn;
  submit: Submit;
  conversations: ConversationStore;
  knowledge: Pick<KnowledgeStore, 'readKnowledge'>;
  orUnavailable: OrUnavailable;
  toApiError: (failure: unknown, req: Request, res: Response) => ApiError;
};

type Call = { req: Request; res: Response };

/** What a tool returns: a text for a model, and the answer of the chat API. */
const resultOf = (value: object, text: string) => ({
  content: [{ type: 'text' as const, text }],
  structuredContent: JSON.parse(JSON.stringify(value)) as Record<string, unknown>, // with times as texts
});

/** How many searches are made at once, and which are slow. All entries are read for each, which may take seconds. */
const SEARCHES = { total: 2, slowMs: 1_000, hangsMs: 4_000 };
const searches = createPacedSlots({ ...SEARCHES, shareOf: oneEach });
const rested = createRestedWork();

const addTools = (server: McpServer, { req, res }: Call, dependencies: Dependencies): void => {
  const { gatedTurn, submit, conversations, knowledge, orUnavailable, toApiError } = dependencies;
  const { assistantId } = callerOf(res).assistant;

  /** An error is told to the model, which can often correct it. */
  const answering =
    <Input, Result>(work: (input: Input) => Promise<Result>) =>
    async (input: Input) => {
      try {
        return await work(input);
      } catch (failure) {
        const { code, message, headers } = toApiError(failure, req, res);
        const wait = headers['Retry-After'] === undefined ? '' : ` Retry after ${headers['Retry-After']} s.`;
        return { isError: true, content: [{ type: 'text' as const, text: `${code}: ${message}${wait}` }] };
      }
    };

  server.registerTool(
    'ask',
    ASK,
    answering(async ({ session_id: sessionId, message, language }: z.infer<typeof ASK.inputSchema>) => {
      const said = { sessionId, message, language: language ?? null, withSources: true };
      const turn = gatedTurn(req, res, said);
      const { response, delivered } = await submit(turn);
      res.on('finish', delivered);
      return resultOf(response, response.reply);
    }),
  );

  server.registerTool(
    'search_knowledge',
    SEARCH,
    answering(async ({ query, limit = ENTRIES_FOUND }: z.infer<typeof SEARCH.inputSchema>) => {
      const signal = signalOf(res);
      const rank = () =>
        searches.watch(assistantId, rankKnowledge(knowledge.readKnowledge(assistantId, signal), query, limit));
      const search = async () => {
        const found = await inSlot(searches, assistantId, rank, { signal });
        await takeRoomForAnswer(req, res); // visitors need these places, so no search waits or works in one
        return found;
      };
      const best = await rested(assistantId, search, signal);
      const entries = best.map(({ question, answer, language }) => ({ question, answer, language }));
      return resultOf({ entries }, entries.map(({ question, answer }) => `${question}\n${answer}`).join('\n\n'));
    }),
  );

  server.registerTool(
    'read_conversation',
    READ,
    answering(async ({ conversation_id, after_seq }: z.infer<typeof READ.inputSchema>) => {
      await takeRoomForAnswer(req, res);
      const view = await buildAnswer(req, res, async () => {
        const conversation = await orUnavailable(conversations.findById(conversation_id, assistantId));
        if (!conversation) throw notFound();
        const page = await conversations.history.readPage(conversation, {
          ...(after_seq !== undefined && { from: afterSeq(after_seq) }),
          limit: MESSAGES_READ,
          finalOnly: after_seq !== undefined,
        });
        return toHistoryView(conversation, page, { nextCursor: null, withSources: true });
      });
      return resultOf(view, view.messages.map(({ role, content }) => `${role}: ${content}`).join('\n'));
    }),
  );

  server.registerTool(
    'escalate',
    ESCALATE,
    answering(async ({ conversation_id: conversationId, reason }: z.infer<typeof ESCALATE.inputSchema>) => {
      const { conversation } = await conversations.transitions.escalate(
        { conversationId, assistantId },
        reason == null ? {} : { reason },
      );
      return resultOf(toEscalationView(conversation), 'A person takes over.');
    }),
  );
};

/** The library is loaded for the first caller, because most installations have none. */
const openHandler = async (dependencies: Dependencies): Promise<McpHttpHandler> => {
  const { createMcpHandler, McpServer: Server } = await import('@modelcontextprotocol/server');
  return createMcpHandler(
    ({ authInfo }) => {
      const server = new Server({ name: 'parley', version: VERSION });
      addTools(server, authInfo?.extra as Call, dependencies);
      return server;
    },
    { responseMode: 'json' },
  );
};

const TOOLS = new Map(
  Object.entries({ ask: ASK, search_knowledge: SEARCH, read_conversation: READ, escalate: ESCALATE }).map(
    ([name, { inputSchema }]) => [name, Object.keys(inputSchema.shape)],
  ),
);
/** The maximum length of a call of a tool without the arguments that the tool knows, in characters. */
const BESIDE_ARGUMENTS_MAX = 16 * 1024;

const Message = z.looseObject({
  params: z.looseObject({ name: z.string(), arguments: z.record(z.string(), z.unknown()).optional() }),
});

const isLong = (value: object): boolean => {
  try {
    return JSON.stringify(value).length > BESIDE_ARGUMENTS_MAX;
  } catch {
    return true; // its objects are inside each other a thousand times
  }
};

const requireShort = (value: object): void => {
  if (isLong(value))
    throw new ApiError('payload_too_large', { message: 'The message has too much beside its arguments.' });
};

/**
 * The message without arguments that its tool does not know. The library keeps what it gets until the answer, which may
 * take long, so the rest must be short.
 */
const withoutUnknown = (body: unknown): unknown => {
  const { data: message } = Message.safeParse(body);
  const known = message && TOOLS.get(message.params.name);
  if (!known) {
    requireShort(body as object); // the library validates a message several times
    return body;
  }
  const { arguments: args = {}, ...params } = message.params;
  requireShort({ ...message, params });
  const named = Object.entries(args).filter(([name]) => known.includes(name));
  return { ...message, params: { ...params, arguments: Object.fromEntries(named) } };
};

/** A stream of changes would stay open, and there are none to tell. */
const isSubscription = ({ method }: { method?: unknown }): boolean => method === 'subscriptions/listen';

const asWebRequest = (req: Request): globalThis.Request => {
  const headers = Object.entries(req.headers).flatMap(([name, value]): [string, string][] =>
    typeof value === 'string' ? [[name, value]] : [],
  );
  return new Request(`http://localhost${MCP_PATH}`, { method: 'POST', headers });
};

export const mcpRoutes = (dependencies: Dependencies): Router => {
  let opening: Promise<McpHttpHandler> | undefined;

  const answer: RequestHandler = async (req, res) => {
    if (isSubscription(req.body as object)) throw new ApiError('forbidden', { message: 'There are no subscriptions.' });
    const { fetch } = await (opening ??= openHandler(dependencies));
    const authInfo = { token: '', clientId: callerOf(res).keyId ?? '', scopes: [], extra: { req, res } };
    const parsedBody = withoutUnknown(req.body);
    req.body = undefined; // the tool may wait for seconds
    const answered = await fetch(asWebRequest(req), { authInfo, parsedBody });
    res.status(answered.status);
    for (const [name, value] of answered.headers) res.setHeader(name, value);
    if (answered.body === null) return void res.end();
    await pipeline(Readable.fromWeb(answered.body), res).catch(() => undefined); // the caller has left
  };

  const router = Router({ caseSensitive: true });
  router.post(MCP_PATH, dependencies.access.byApiKey, jsonBody({ takeTurn }), working(answer));
  router.all(MCP_PATH, methodNotAllowed('POST'));
  return router;
};
