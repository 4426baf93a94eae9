import * as z from 'zod';
import type { Assistant, Channel } from '../assistant.ts';
import { type ChannelCalls, OPEN_CHANNEL_WARNING } from '../channel.ts';
import { WebSettings } from '../settings.ts';
import type { AssistantStore } from '../store.ts';
import { definedFields, type Handled, handled, operation, time, uuid } from '../../operators/operation.ts';

const one = { audience: 'owners', resource: 'assistant' } as const;
const path = '/assistants/:id/channel';

const ChannelView = z
  .object({
    path: z.string().meta({ description: 'The path to POST to.' }),
    connected: z.boolean(),
    open: z.boolean().meta({ description: 'Connected without a verify token.' }),
    limitPerMinute: z.int(),
    warning: z.string().nullable(),
    secretAddress: z
      .object({ createdAt: time })
      .nullable()
      .meta({ description: 'Whether there is an address with a secret in its path: when it was made, or null.' }),
  })
  .meta({ id: 'Channel' });

const CallView = z
  .object({
    at: z.iso.datetime(),
    status: z.int().meta({ description: 'The response’s status; 499: the caller left before it.' }),
    ms: z.int(),
    error: z.string().optional().meta({ description: 'The error code.' }),
    sessionId: z
      .string()
      .optional()
      .meta({ description: 'Given for well-formed requests that passed authentication.' }),
    conversationId: uuid.optional(),
  })
  .meta({ id: 'ChannelCall' });

const Change = z.object({
  connected: z.boolean().optional(),
  token: z
    .string()
    .regex(/^[\x21-\x7e]{1,255}$/, 'must be 1–255 visible ASCII characters')
    .nullable()
    .optional()
    .meta({ description: 'Null: open to anyone who knows the address. Omitted: unchanged.' }),
  limitPerMinute: z.int().min(1).max(1_000_000).optional(),
});

export const channelOperations = {
  read: operation({
    ...one,
    method: 'get',
    path,
    id: 'getChannel',
    summary: 'Read the inbound webhook channel',
    answer: ChannelView,
  }),
  change: operation({
    ...one,
    method: 'patch',
    path,
    id: 'changeChannel',
    summary:
      'Connect the channel with or without a token, change its limit, or disconnect it (deletes token and secret address)',
    body: Change,
    answer: ChannelView,
    audit: 'channel.change',
  }),
  calls: operation({
    ...one,
    method: 'get',
    path: `${path}/calls`,
    id: 'listChannelCalls',
    summary: 'List the last 20 calls, newest first, including refused ones; kept 7 days',
    answer: z.object({ calls: z.array(CallView) }),
  }),
  clearToken: operation({
    ...one,
    method: 'delete',
    path: `${path}/token`,
    id: 'clearChannelToken',
    summary: 'Remove the token: anyone who knows the address can call',
    answer: ChannelView,
    audit: 'channel.clear_token',
  }),
  rotateAddress: operation({
    ...one,
    method: 'post',
    path: `${path}/secret-address`,
    id: 'rotateChannelAddress',
    summary: 'Make an address with a secret in its path, shown only once; the one before ends within a second',
    answer: z.object({
      channel: ChannelView,
      secretPath: z.string().meta({ description: 'The path to POST to, without a token. Shown only once.' }),
    }),
    audit: 'channel.rotate_address',
    errors: ['conflict'],
  }),
  removeAddress: operation({
    ...one,
    method: 'delete',
    path: `${path}/secret-address`,
    id: 'removeChannelAddress',
    summary: 'Remove the address with a secret in its path: its callers get 401',
    answer: ChannelView,
    audit: 'channel.remove_address',
  }),
};

const pathOf = (assistantId: string): string => `/api/v1/channels/webhook/${assistantId}`;

const toView = (assistantId: string, { connected, tokenHash, limitPerMinute, secretAddress }: Channel) => {
  const open = connected && tokenHash === null;
  return {
    path: pathOf(assistantId),
    connected,
    open,
    limitPerMinute,
    warning: open ? OPEN_CHANNEL_WARNING : null,
    secretAddress: secretAddress ? { createdAt: secretAddress.createdAt } : null,
  };
};

type Dependencies = { assistants: AssistantStore; channelCalls: ChannelCalls };

export const channelRoutes = ({ assistants, channelCalls }: Dependencies): Handled[] => {
  return [
    handled(channelOperations.read, async ({ params: { id = '' } }) =>
      toView(id, (await assistants.getAssistant(id)).channel),
    ),

    handled(channelOperations.change, async ({ params: { id = '' }, body, note }) => {
      const changed = toView(id, (await assistants.setChannel(id, definedFields(body))).channel);
      const { connected, open, limitPerMinute } = changed;
      note({ target: id, details: { connected, open, limitPerMinute, newToken: typeof body.token === 'string' } });
      return changed;
    }),

    handled(channelOperations.calls, async ({ params: { id = '' } }) => {
      await assistants.getAssistant(id);
      return { calls: await channelCalls.list(id) };
    }),

    handled(channelOperations.clearToken, async ({ params: { id = '' } }) =>
      toView(id, (await assistants.clearChannelToken(id)).channel),
    ),

    handled(channelOperations.rotateAddress, async ({ params: { id = '' } }) => {
      const { assistant, secret } = await assistants.rotateSecretAddress(id);
      return { channel: toView(id, assistant.channel), secretPath: `${pathOf(id)}/${secret}` };
    }),

    handled(channelOperations.removeAddress, async ({ params: { id = '' } }) =>
      toView(id, (await assistants.removeSecretAddress(id)).channel),
    ),
  ];
};

const WebView = z
  .object({
    ...WebSettings.shape,
    page: z.string().meta({ description: 'The path of the hosted page.' }),
    identity: z
      .object({ createdAt: time })
      .nullable()
      .meta({ description: 'Whether user ids are accepted: the time of their secret, or null.' }),
  })
  .meta({ id: 'WebChannel' });

const webPath = '/assistants/:id/web';

const WebChange = z.object(WebSettings.shape).partial();

export const webChannelOperations = {
  read: operation({
    ...one,
    method: 'get',
    path: webPath,
    id: 'getWebChannel',
    summary: 'Read the web channel: who may show the widget, and how it looks',
    answer: WebView,
  }),
  change: operation({
    ...one,
    method: 'patch',
    path: webPath,
    id: 'changeWebChannel',
    summary: 'Switch the web channel on or off, or change its origins or looks',
    body: WebChange,
    answer: WebView,
    audit: 'web.change',
  }),
  rotateIdentity: operation({
    ...one,
    method: 'post',
    path: `${webPath}/identity`,
    id: 'rotateWebIdentity',
    summary: 'Make a new secret that signs user ids, shown only once; the one before ends at once',
    answer: z.object({ web: WebView, secret: z.string().meta({ description: 'Shown only once.' }) }),
    audit: 'web.rotate_identity',
  }),
  removeIdentity: operation({
    ...one,
    method: 'delete',
    path: `${webPath}/identity`,
    id: 'removeWebIdentity',
    summary: 'Remove that secret: user ids are no longer accepted',
    answer: WebView,
    audit: 'web.remove_identity',
  }),
};

const toWebView = ({ assistantId, web }: Pick<Assistant, 'assistantId' | 'web'>) => {
  const { identity, ...settings } = web;
  const { createdAt } = identity ?? {};
  return { ...settings, page: `/w/${assistantId}`, identity: createdAt ? { createdAt } : null };
};

type WebDependencies = { assistants: AssistantStore };

export const webChannelRoutesForOwners = ({ assistants }: WebDependencies): Handled[] => [
  handled(webChannelOperations.read, async ({ params: { id = '' } }) => toWebView(await assistants.getAssistant(id))),

  handled(webChannelOperations.change, async ({ params: { id = '' }, body, note }) => {
    const changed = toWebView(await assistants.setWeb(id, definedFields(body)));
    note({ target: id, details: { enabled: changed.enabled, origins: changed.origins.join(' ') } });
    return changed;
  }),

  handled(webChannelOperations.rotateIdentity, async ({ params: { id = '' } }) => {
    const { assistant, secret } = await assistants.rotateWebIdentity(id);
    return { web: toWebView(assistant), secret };
  }),

  handled(webChannelOperations.removeIdentity, async ({ params: { id = '' } }) =>
    toWebView(await assistants.removeWebIdentity(id)),
  ),
];
