import { randomUUID } from 'node:crypto';
import type { AssistantInput } from '../../src/assistants/assistant.ts';
import type { KnowledgeInput } from '../../src/assistants/knowledge/entry.ts';
import type { ErrorBody as WireError } from '../../src/platform/process/errors.ts';
import type { PublicOperation } from '../../src/assistants/access.ts';
import { chatConversationOperations } from '../../src/conversations/http.ts';
import { chatTurnOperations } from '../../src/turns/http/turn-routes.ts';
import { addressOf, type AnswerOf } from '../kit/operations.ts';
import type { Stack } from './stack.ts';
import { validateResponse } from './validate-response.ts';

export type ChatBody = AnswerOf<typeof chatTurnOperations.send>;
export type HistoryBody = AnswerOf<typeof chatConversationOperations.get>;
export type ErrorBody = WireError;
export type Answer<Body> = { status: number; headers: Headers; body: Body };

export const aTurn = (overrides: Record<string, unknown> = {}): Record<string, unknown> => ({
  session_id: `session-${randomUUID()}`,
  message: 'What are your opening hours?',
  ...overrides,
});

export const anEntry = (overrides: Partial<KnowledgeInput> = {}): KnowledgeInput => ({
  question: 'What are your opening hours?',
  variants: [],
  answer: 'We are open from 9 to 5.',
  language: 'en',
  actions: [],
  tags: [],
  ...overrides,
});

/** Sends a request as a caller does. A string body is sent unchanged, any other body as JSON. */
export const request = async <Body = ChatBody>(
  url: string,
  options: { method?: string; body?: unknown; headers?: Record<string, string>; bearer?: string | null } = {},
): Promise<Answer<Body>> => {
  const { method = options.body === undefined ? 'GET' : 'POST', body, headers, bearer } = options;
  const response = await fetch(url, {
    method,
    headers: {
      ...(body !== undefined && { 'Content-Type': 'application/json' }),
      ...(bearer && { Authorization: `Bearer ${bearer}` }),
      ...headers,
    },
    ...(body !== undefined && {
      body: typeof body === 'string' || body instanceof Uint8Array ? (body as string) : JSON.stringify(body),
    }),
  });
  const text = await response.text();
  const { status, headers: received } = response;
  const parsed = text ? (JSON.parse(text) as unknown) : null;
  // Every response of the suite is checked against the OpenAPI document.
  validateResponse({ method, url, status, headers: received, body: parsed });
  return { status, headers: received, body: parsed as Body };
};

type CallOf = { params?: Record<string, string>; query?: string } & NonNullable<Parameters<typeof request>[1]>;

/** An assistant with one entry of knowledge, a key, and helpers that call the stack. */
export const anAssistant = async (
  stack: Stack,
  options: { input?: Partial<AssistantInput>; knowledge?: KnowledgeInput[]; limitPerMinute?: number } = {},
) => {
  const { assistants } = stack.service;
  const { assistantId } = await assistants.createAssistant({
    name: 'Test assistant',
    sessionLimitPerMinute: 1_000_000,
    ...options.input,
  });
  const knowledge = options.knowledge ?? [anEntry()];
  if (knowledge.length > 0) await assistants.addKnowledge(assistantId, knowledge);
  const { apiKey, key } = await assistants.createApiKey({
    assistantId,
    name: 'test',
    limitPerMinute: options.limitPerMinute ?? 1_000_000,
  });
  const call = <Body>(path: string, rest: Parameters<typeof request>[1] = {}) =>
    request<Body>(`${stack.url}${path}`, { bearer: apiKey, ...rest });
  /** Calls an operation with the address, method and response type of its declaration. */
  const callOperation = <One extends PublicOperation>(one: One, { params, query, ...rest }: CallOf = {}) =>
    call<AnswerOf<One>>(addressOf(one, params, query), { method: one.method.toUpperCase(), ...rest });
  return {
    assistantId,
    apiKey,
    keyId: key.keyId,
    call,
    chat: (body: Record<string, unknown>, rest: Parameters<typeof request>[1] = {}) =>
      callOperation(chatTurnOperations.send, { body, ...rest }),
    history: (conversationId: string, query = '') =>
      callOperation(chatConversationOperations.get, { params: { id: conversationId }, query }),
    callOperation,
  };
};
export type TestAssistant = Awaited<ReturnType<typeof anAssistant>>;

/** The longest text of a message: 32 KB of UTF-8. */
export const LONGEST_TEXT = '😀'.repeat(8_000);
export const LONG_MESSAGES = 400;

/** A conversation with many of the longest messages, stored as pages. A page of its history has a MiB. */
export const aLongConversation = async (
  stack: Stack,
  { chat }: TestAssistant,
  messages = LONG_MESSAGES,
): Promise<string> => {
  const { conversationId } = (await chat(aTurn())).body;
  const { mongo } = stack.service;
  const message = (seq: number) => ({
    seq,
    messages: [
      {
        messageId: randomUUID(),
        turnId: null,
        role: 'operator',
        content: LONGEST_TEXT,
        language: 'en',
        createdAt: new Date(),
      },
    ],
  });
  const pages = Array.from({ length: messages / 8 }, (_, page) => ({
    _id: `${conversationId}:${String(page).padStart(12, '0')}`,
    conversationId,
    entries: Array.from({ length: 8 }, (__, nth) => message(page * 8 + nth + 1)),
  }));
  for (let at = 0; at < pages.length; at += 25)
    await mongo.collection('messages').insertMany(pages.slice(at, at + 25) as never);
  const whole = { seq: messages, storedTo: messages, texts: {} };
  await mongo.collection('conversations').updateOne({ conversationId }, { $set: whole });
  return conversationId;
};
