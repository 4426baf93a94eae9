import { randomUUID } from 'node:crypto';
import type { AssistantInput } from '../../src/assistants/assistant.ts';
import type { KnowledgeInput } from '../../src/assistants/knowledge-input.ts';
import type { Stack } from './stack.ts';
import { validateResponse } from './validate-response.ts';

export type ChatBody = { reply: string; conversationId: string; messageId: string; suggestedActions?: unknown[] };
export type ErrorBody = { error: { code: string; message: string; field?: string; requestId: string } };
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

/** A request as a caller's server makes it. `body` as it is if a string, else as JSON. */
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
  // Every response of the whole suite is held against the OpenAPI document.
  validateResponse({ method, url, status, headers: received, body: parsed });
  return { status, headers: received, body: parsed as Body };
};

/** An assistant with one entry of knowledge, a key, and helpers that speak to the stack as its caller would. */
export const anAssistant = async (
  stack: Stack,
  options: { input?: Partial<AssistantInput>; knowledge?: KnowledgeInput[]; limitPerMinute?: number } = {},
) => {
  const { assistants } = stack.service;
  const { assistantId } = await assistants.createAssistant({ name: 'Test assistant', ...options.input });
  const knowledge = options.knowledge ?? [anEntry()];
  if (knowledge.length > 0) await assistants.addKnowledge(assistantId, knowledge);
  const { apiKey, key } = await assistants.createApiKey({
    assistantId,
    name: 'test',
    limitPerMinute: options.limitPerMinute ?? 1_000_000,
  });
  const call = <Body>(path: string, rest: Parameters<typeof request>[1] = {}) =>
    request<Body>(`${stack.url}${path}`, { bearer: apiKey, ...rest });
  return {
    assistantId,
    apiKey,
    keyId: key.keyId,
    call,
    chat: (body: Record<string, unknown>, rest: Parameters<typeof request>[1] = {}) =>
      call<ChatBody>('/api/v1/chat', { body, ...rest }),
    history: (conversationId: string, query = '') =>
      call<HistoryBody>(`/api/v1/conversations/${conversationId}${query}`),
  };
};
export type TestAssistant = Awaited<ReturnType<typeof anAssistant>>;

export type HistoryBody = {
  conversationId: string;
  sessionId: string;
  channel: string;
  language: string;
  status: string;
  leadScore: number;
  tags: { tag: string; color: string | null }[];
  createdAt: string;
  updatedAt: string;
  escalatedAt: string | null;
  escalationReason: string | null;
  resolvedAt: string | null;
  resolvedBy: string | null;
  messages: {
    messageId: string;
    turnId: string | null;
    seq: number | null;
    role: string;
    content: string;
    language: string | null;
    createdAt: string;
  }[];
  hasMore: boolean;
  nextCursor: string | null;
};
