import { createHmac } from 'node:crypto';
import { type WebOperation, webOperations } from '../../src/web-channel/operations.ts';
import type { WebSettings } from '../../src/assistants/settings.ts';
import { anAssistant, request } from './builders.ts';
import { addressOf, type AnswerOf } from '../kit/operations.ts';
import type { Stack } from './stack.ts';

export const SITE = 'https://shop.example';

/** An assistant whose widget the site may show. */
export const aWebAssistant = async (
  stack: Stack,
  web: Partial<WebSettings> = {},
  options: Parameters<typeof anAssistant>[1] = {},
) => {
  const assistant = await anAssistant(stack, options);
  await stack.service.assistants.setWeb(assistant.assistantId, { enabled: true, origins: [SITE], ...web });
  return assistant;
};

/** Signs a user’s id as the customer’s server does. */
export const signUser = (secret: string, id: string, expires = Math.floor(Date.now() / 1000) + 600) => ({
  id,
  expires,
  signature: createHmac('sha256', secret).update(`${expires}.${id}`).digest('hex'),
});

type Rest = { query?: string; body?: unknown; headers?: Record<string, string>; bearer?: string | null };

/** A visitor’s browser on the site. */
export const atSite = ({ url }: Pick<Stack, 'url'>, assistantId: string, origin: string | null = SITE) => {
  const call = <One extends WebOperation>(one: One, { query = '', headers, ...rest }: Rest = {}) =>
    request<AnswerOf<One>>(`${url}${addressOf(one, { assistant_id: assistantId }, query)}`, {
      method: one.method.toUpperCase(),
      headers: { ...(origin !== null && { Origin: origin }), ...headers },
      ...rest,
    });
  return {
    call,
    settings: () => call(webOperations.settings),
    start: (user?: unknown) => call(webOperations.start, { body: user === undefined ? {} : { user } }),
  };
};

/** A visitor who has a session. */
export const aVisitor = async (stack: Pick<Stack, 'url'>, assistantId: string, user?: unknown) => {
  const site = atSite(stack, assistantId);
  const { body, status } = await site.start(user);
  if (status !== 201) throw new Error(`starting a session was answered with ${status}`);
  const { token: bearer } = body;
  return {
    ...site,
    token: bearer,
    say: (message: unknown, headers: Record<string, string> = {}) =>
      site.call(webOperations.send, { body: { message }, bearer, headers }),
    read: (query = '') => site.call(webOperations.read, { query, bearer }),
    escalate: (reason?: unknown) => site.call(webOperations.escalate, { body: { reason }, bearer }),
  };
};
