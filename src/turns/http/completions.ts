import type { Request, RequestHandler, Response, Router } from 'express';
import * as z from 'zod';
import { type Access, callerOf, createPublicRouter, publicOperation } from '../../assistants/access.ts';
import { answerWith, bodyOf } from '../../platform/http/operation.ts';
import { ApiError, type ErrorBody, invalid } from '../../platform/process/errors.ts';
import { validate } from '../../platform/process/validation.ts';
import type { Submit, TurnRequest } from '../start-turn.ts';
import type { StreamTurn, StreamWriter } from '../stream.ts';
import { ChatResponse, MessageText, SESSION_ID_MAX, SessionId } from '../turn.ts';
import { errorBodyOf } from '../../platform/http/http.ts';
import { type GatedTurn, MERGED, setMerged, setReplayed } from './turn-routes.ts';

/**
 * The chat completions of OpenAI's protocol (docs/contract.md, OpenAI's protocol): a client of it talks to an assistant
 * when its base URL and key are changed. Its requests hold the whole conversation, ours is stored, so only the last
 * message of the visitor counts.
 */

/** The history that clients repeat. A longer body would hold the loop for several milliseconds while it is parsed. */
const BODY_LIMIT_BYTES = 256 * 1024;
const MESSAGES_MAX = 2_000;

/** Only the last message of the visitor is checked, so that earlier ones cost nothing. */
const Messages = z
  .array(z.unknown())
  .min(1)
  .max(MESSAGES_MAX)
  .meta({
    description:
      'The last one with the role `user` is the message; its `content` is a text, or parts of the type `text`. All others are ' +
      'ignored: the conversation is stored.',
    override: { items: { type: 'object', properties: { role: { type: 'string' }, content: {} }, required: ['role'] } },
  });

const CompletionRequest = z
  .object({
    model: z.string().max(256).optional().meta({ description: 'Any text: the key decides the assistant.' }),
    messages: Messages,
    user: z
      .string()
      .optional()
      .meta({
        description: `Names the session (1–${SESSION_ID_MAX} characters): any stable text for each visitor. Or send \`X-Session-Id\`.`,
        example: 'visitor-42',
      }),
    stream: z.boolean().nullish(),
    stream_options: z.object({ include_usage: z.boolean().nullish() }).nullish(),
  })
  .meta({ id: 'CompletionRequest', description: 'All other fields of the protocol are ignored.' });

const Usage = z
  .object({ prompt_tokens: z.int(), completion_tokens: z.int(), total_tokens: z.int() })
  .meta({ description: 'An estimate for message and reply: a token for each four bytes.' });
type Usage = z.infer<typeof Usage>;

const Extension = ChatResponse.omit({ reply: true }).meta({ description: 'What the protocol has no place for.' });

const Completion = z
  .object({
    id: z.string(),
    object: z.literal('chat.completion'),
    created: z.int().meta({ description: 'Seconds since 1970.' }),
    model: z.string(),
    choices: z.array(
      z.object({
        index: z.literal(0),
        message: z.object({ role: z.literal('assistant'), content: z.string(), refusal: z.null() }),
        logprobs: z.null(),
        finish_reason: z.literal('stop'),
      }),
    ),
    usage: Usage,
    parley: Extension,
  })
  .meta({ id: 'Completion' });

const Model = z.object({
  id: z.string(),
  object: z.literal('model'),
  created: z.int(),
  owned_by: z.string().meta({ description: 'The name of the assistant.' }),
});

const MODEL = 'parley';

const EXAMPLE = {
  head: { id: 'chatcmpl-6f1d2c3b-8a49-4d10-a2f3-0a1b2c3d4e5f', created: 1_790_000_000, model: MODEL },
  content: 'We are open from 9 to 5.',
  parley: {
    conversationId: '6f1d2c3b-8a49-4e5f-9b7a-1c2d3e4f5a6b',
    messageId: 'f3a1c9d2-5b7e-4c8a-8e1f-9d0b2a4c6e8f',
  },
};

const data = (value: unknown): string => `data: ${JSON.stringify(value)}\n\n`;

export const completionOperations = {
  complete: publicOperation({
    method: 'post',
    path: '/v1/chat/completions',
    id: 'createChatCompletion',
    tag: 'OpenAI’s protocol',
    summary: 'Send a message with a client of OpenAI’s chat completions',
    description:
      'The same turn as `POST /api/v1/chat`, with its order, limits and retries. The errors have the same codes, with `type` and ' +
      '`param` of this protocol beside them.',
    auth: 'apiKey',
    limiter: 'key',
    headers: z.object({
      'X-Session-Id': z.string().optional().meta({ description: 'Names the session, before `user`.' }),
    }),
    body: CompletionRequest,
    bodyExample: {
      model: MODEL,
      user: 'visitor-42',
      messages: [{ role: 'user', content: 'What are your opening hours?' }],
    },
    bodyLimitBytes: BODY_LIMIT_BYTES,
    bodyIsMessage: true,
    answer: Completion,
    answerHeaders: MERGED,
    answerExample: {
      ...EXAMPLE.head,
      object: 'chat.completion',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: EXAMPLE.content, refusal: null },
          logprobs: null,
          finish_reason: 'stop',
        },
      ],
      usage: { prompt_tokens: 7, completion_tokens: 6, total_tokens: 13 },
      parley: EXAMPLE.parley,
    },
    stream: {
      description:
        'Sent for `"stream": true`: chunks, then `[DONE]`. The last chunk of the reply has `parley`. An error after the first chunk ' +
        'is a chunk with `error`: send the same request again to get the reply.',
      example: [
        { delta: { role: 'assistant', content: '' }, finish_reason: null },
        { delta: { content: EXAMPLE.content }, finish_reason: null },
        { delta: {}, finish_reason: 'stop' },
      ]
        .map((choice) =>
          data({
            ...EXAMPLE.head,
            object: 'chat.completion.chunk',
            choices: [{ index: 0, ...choice }],
            ...(choice.finish_reason !== null && { parley: EXAMPLE.parley }),
          }),
        )
        .concat('data: [DONE]\n\n')
        .join(''),
    },
    errors: ['idempotency_key_reused', 'session_busy', 'quota_exceeded', 'reply_timeout', 'not_found'],
  }),
  models: publicOperation({
    method: 'get',
    path: '/v1/models',
    id: 'listModels',
    tag: 'OpenAI’s protocol',
    summary: 'List the assistant of the key as a model',
    auth: 'apiKey',
    limiter: 'key',
    answer: z.object({ object: z.literal('list'), data: z.array(Model).max(1) }),
    answerExample: {
      object: 'list',
      data: [{ id: MODEL, object: 'model', created: EXAMPLE.head.created, owned_by: 'Front desk' }],
    },
  }),
};

export const COMPLETIONS_PATH = completionOperations.complete.path;

const typeOf = ({ status }: ApiError): string => {
  if (status >= 500) return 'server_error';
  return status === 429 ? 'rate_limit_error' : 'invalid_request_error';
};

/** An error as clients of the protocol read it, with our fields beside theirs. */
export const toCompletionError = (error: ApiError, requestId: string): ErrorBody => {
  const { error: own } = error.toBody(requestId);
  return { error: { ...own, type: typeOf(error), param: own.field ?? null } };
};

const TextPart = z.object({ type: z.literal('text'), text: z.string() });
const isTextPart = (part: unknown): part is z.infer<typeof TextPart> => TextPart.safeParse(part).success;

/** Ends at the first wrong part: thousands of wrong ones would take a schema milliseconds. */
const textIn = (content: unknown): string | null => {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content) || content.length === 0 || content.length > MESSAGES_MAX) return null;
  return content.every(isTextPart) ? content.map(({ text }) => text).join('\n') : null;
};

const isOfVisitor = (one: unknown): one is { role: 'user'; content?: unknown } =>
  typeof one === 'object' && one !== null && 'role' in one && one.role === 'user';

const checked = (schema: z.ZodType<string>, field: string, value: string): string =>
  validate(z.object({ [field]: schema }), { [field]: value })[field] as string;

/** The text of the last message with the role `user`. */
const messageIn = (messages: unknown[]): string => {
  const nth = messages.findLastIndex(isOfVisitor);
  const field = `messages.${nth}.content`;
  if (nth < 0) throw invalid('messages', 'invalid', 'must have a message with the role "user"');
  const text = textIn((messages[nth] as { content?: unknown }).content);
  if (text === null) throw invalid(field, 'invalid', 'must be a text, or parts of the type "text"');
  return checked(MessageText, field, text);
};

const sessionIn = (req: Request, user: string | undefined): string => {
  const header = req.get('X-Session-Id');
  const field = header === undefined ? 'user' : 'X-Session-Id';
  const given = header ?? user;
  if (given === undefined)
    throw invalid('user', 'required', 'must name the session of the visitor; so may the header X-Session-Id');
  return checked(SessionId, field, given);
};

const BYTES_PER_TOKEN = 4;

/** A tokenizer would take the process 80 MB, and half a second of its loop when it is loaded. */
const tokensIn = (text: string): number => Math.ceil(Buffer.byteLength(text) / BYTES_PER_TOKEN);

const usageOf = (prompt_tokens: number, reply: string): Usage => {
  const completion_tokens = tokensIn(reply);
  return { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens };
};

const extensionOf = ({ reply: _reply, ...rest }: ChatResponse): z.infer<typeof Extension> => rest;

const now = (): number => Math.floor(Date.now() / 1000);

/** What the answer needs of its request. The message is not kept while the reply is made. */
type Asked = { model: string; promptTokens: number };

type Chunk = { choices: object[]; parley?: object; usage?: Usage | null };

/**
 * Writes a turn as chunks. The protocol cannot take a text back: while a reply is made again, nothing is written, and a
 * reply that does not begin with what was sent ends in an error. The same request then gets the stored reply.
 */
const createChunkWriter = (
  res: Response,
  { model, promptTokens, includeUsage }: Asked & { includeUsage: boolean },
): StreamWriter => {
  const head = { object: 'chat.completion.chunk', created: now(), model };
  let id = '';
  let sent = '';

  const send = (value: string): void => {
    if (!res.destroyed) res.write(value);
  };
  const sendChunk = (chunk: Chunk): void =>
    send(data({ id, ...head, ...chunk, ...(includeUsage && { usage: chunk.usage ?? null }) }));
  const sendDelta = (delta: object, finish_reason: 'stop' | null = null, rest: Partial<Chunk> = {}): void =>
    sendChunk({ choices: [{ index: 0, delta, logprobs: null, finish_reason }], ...rest });
  const sendText = (text: string): void => {
    if (!text.startsWith(sent) || text === sent) return;
    sendDelta({ content: text.slice(sent.length) });
    sent = text;
  };
  return {
    accepted: ({ turnId }) => {
      id = `chatcmpl-${turnId}`;
      sendDelta({ role: 'assistant', content: '' });
    },
    progress: ({ text }) => sendText(text),
    message: (response) => {
      if (!response.reply.startsWith(sent))
        throw new ApiError('conflict', { message: 'The reply was made again. Send the same request again to get it.' });
      sendText(response.reply);
      sendDelta({}, 'stop', { parley: extensionOf(response) });
      if (includeUsage) sendChunk({ choices: [], usage: usageOf(promptTokens, response.reply) });
      send('data: [DONE]\n\n');
    },
    error: (error) => send(data(errorBodyOf(error, res))),
  };
};

type Dependencies = { access: Access; gatedTurn: GatedTurn; submit: Submit; streamTurn: StreamTurn };

export const completionRoutes = ({ access, gatedTurn, submit, streamTurn }: Dependencies): Router => {
  /** What a request asks for. Nothing of its other messages is kept, because a turn may wait for seconds. */
  const read = (req: Request, res: Response) => {
    const { model = MODEL, user, messages, stream, stream_options } = bodyOf(completionOperations.complete, req);
    const said = { sessionId: sessionIn(req, user), message: messageIn(messages), language: null, withSources: true };
    const turn: TurnRequest = gatedTurn(req, res, said);
    const asked: Asked = { model, promptTokens: tokensIn(said.message) };
    return { turn, asked, isStream: stream === true, includeUsage: stream_options?.include_usage === true };
  };

  const answer = async (submitting: ReturnType<Submit>, { model, promptTokens }: Asked, res: Response) => {
    const { response, turnId, replayed, delivered } = await submitting;
    setReplayed(res, replayed);
    setMerged(res, response);
    res.on('finish', delivered);
    answerWith(completionOperations.complete, res, {
      id: `chatcmpl-${turnId}`,
      object: 'chat.completion',
      created: now(),
      model,
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: response.reply, refusal: null },
          logprobs: null,
          finish_reason: 'stop',
        },
      ],
      usage: usageOf(promptTokens, response.reply),
      parley: extensionOf(response),
    });
  };

  const complete: RequestHandler = (req, res) => {
    const { turn, asked, isStream, includeUsage } = read(req, res);
    if (isStream) return streamTurn(turn, req, res, createChunkWriter(res, { ...asked, includeUsage }));
    return answer(submit(turn), asked, res);
  };

  const models: RequestHandler = (_req, res) => {
    const { name, createdAt } = callerOf(res).assistant;
    const created = Math.floor(createdAt.getTime() / 1000);
    const data = [{ id: MODEL, object: 'model' as const, created, owned_by: name }];
    answerWith(completionOperations.models, res, { object: 'list', data });
  };

  return createPublicRouter(access, [
    { operation: completionOperations.complete, handle: complete },
    { operation: completionOperations.models, handle: models },
  ]);
};
