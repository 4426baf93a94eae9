import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import * as z from 'zod';
import { serverNow } from '../platform/process/clock.ts';
import { newToken } from '../platform/process/ids.ts';
import { TIMING } from '../platform/process/time-limits.ts';
import { MAX_URL_LENGTH, parseUrl, validate, withoutSlashes } from '../platform/process/validation.ts';
import type { SecretPlace, Vault } from '../platform/process/vault.ts';

const DEFAULT_PROVIDER_TIMEOUT_MS = TIMING.providerTimeoutMs;

/**
 * The base URL of an OpenAI-compatible API, without `/chat/completions`. The address guard checks the URL at each call.
 */
const BaseUrl = z
  .string()
  .max(MAX_URL_LENGTH, { abort: true }) // before it is parsed
  .pipe(z.url({ protocol: /^https?$/ }))
  .refine((value) => {
    const url = parseUrl(value);
    if (!url) return true; // reported by `z.url`
    return url.username === '' && url.password === '' && url.search === '' && url.hash === '';
  }, 'must not carry a user, a query or a fragment')
  .transform(withoutSlashes);

const provider = {
  kind: z.literal('openai'),
  baseUrl: BaseUrl,
  model: z.string().trim().min(1).max(200),
  /**
   * The time limit for a provider, from the request to the end of the reply. The limit is shorter than the caller's
   * wait, so that there is time to fall back to another engine.
   */
  timeoutMs: z.number().int().min(100).max(TIMING.providerTimeoutMaxMs).default(DEFAULT_PROVIDER_TIMEOUT_MS),
  temperature: z.number().min(0).max(2).nullable().default(null),
  maxTokens: z.number().int().min(16).max(4_000).default(800),
  /** How many tokens of earlier messages are sent to the model. */
  historyTokens: z.number().int().min(0).max(100_000).default(2_000),
};

/**
 * If `apiKey` is omitted and the address stays the same, the stored key is kept. If `apiKey` is null, the stored key is
 * removed.
 */
export const EngineInput = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('retrieval') }),
  z.object({
    ...provider,
    apiKey: z
      .string()
      .regex(/^[\x21-\x7e]{1,4096}$/, 'must be visible ASCII characters')
      .nullish(),
  }),
]);
export type EngineInput = z.input<typeof EngineInput>;

const sealed = z.object({ ...provider, apiKeySealed: z.string().nullable() });
export type ProviderSettings = z.infer<typeof sealed>;
export type EngineSettings = { kind: 'retrieval' } | ProviderSettings;

export const RETRIEVAL: EngineSettings = { kind: 'retrieval' };

/**
 * The engine as a MongoDB expression. The write itself decides whether a stored key is kept, so that a concurrent
 * change of the key is not undone. A key that was stored for one address is never sent to another address.
 */
export const sealedEngine = (input: EngineInput, { vault, assistantId }: { vault: Vault; assistantId: string }) => {
  const parsed = validate(EngineInput, input);
  if (parsed.kind === 'retrieval') return { $literal: RETRIEVAL };
  const { apiKey, ...settings } = parsed;
  const sameAddress = { $eq: ['$engine.baseUrl', { $literal: settings.baseUrl }] };
  const stored = { $cond: [sameAddress, { $ifNull: ['$engine.apiKeySealed', null] }, null] };
  const given = { $literal: apiKey ? vault.seal(apiKey, assistantId) : null };
  return { $mergeObjects: [{ $literal: settings }, { apiKeySealed: apiKey === undefined ? stored : given }] };
};

/**
 * The same for the engine of a draft. A draft is changed in a transaction, so no expression is needed. `before`: the
 * engine that the draft has now.
 */
export const sealEngine = (
  input: EngineInput,
  before: EngineSettings,
  { vault, assistantId }: { vault: Vault; assistantId: string },
): EngineSettings => {
  const parsed = validate(EngineInput, input);
  if (parsed.kind === 'retrieval') return RETRIEVAL;
  const { apiKey, ...settings } = parsed;
  const isSameAddress = before.kind === 'openai' && before.baseUrl === settings.baseUrl;
  const kept = isSameAddress ? before.apiKeySealed : null;
  return { ...settings, apiKeySealed: apiKey === undefined ? kept : apiKey ? vault.seal(apiKey, assistantId) : null };
};

/** `path`: where the engine is in its document. */
export const secretsOfEngine = (
  engine: EngineSettings | undefined,
  { path, assistantId }: { path: string; assistantId: string },
): SecretPlace[] =>
  engine?.kind === 'openai' && engine.apiKeySealed !== null
    ? [{ path: `${path}.apiKeySealed`, sealed: engine.apiKeySealed, context: assistantId }]
    : [];

/** The engine without its provider key. The view shows only whether a key is stored. */
export const toEngineView = (engine: EngineSettings) => {
  if (engine.kind === 'retrieval') return engine;
  const { apiKeySealed, ...settings } = engine;
  return { ...settings, apiKey: apiKeySealed === null ? 'none' : 'configured' };
};

const WEB_ORIGINS_MAX = 50;
const WEB_STARTERS_MAX = 4;
const USER_ID_MAX = 200;

const isOrigin = (value: string): boolean => {
  const url = parseUrl(value);
  // A wildcard is refused, because it matches no origin.
  return url !== null && /^https?:$/.test(url.protocol) && url.origin === value && !value.includes('*');
};

const oneLine = (max: number) =>
  z
    .string()
    .trim()
    .max(max)
    .refine((value) => value.isWellFormed() && !/\p{Cc}/u.test(value), 'must be one line of well-formed Unicode');

/** The web channel of an assistant, as owners set it (docs/widget.md). */
export const WebSettings = z.object({
  enabled: z.boolean().meta({ description: 'If false, the widget and the hosted page are not there.' }),
  origins: z
    .array(z.string().max(300, { abort: true }).refine(isOrigin, 'must be an origin such as https://www.example.com'))
    .max(WEB_ORIGINS_MAX)
    .meta({ description: 'Sites that may show the widget. The hosted page always may.' }),
  title: oneLine(60).meta({ description: 'Empty: the name of the assistant.' }),
  greeting: z
    .string()
    .trim()
    .max(500)
    .refine((value) => value.isWellFormed() && !value.includes('\0'), 'must be well-formed Unicode')
    .meta({ description: 'Empty: a greeting in the language of the page.' }),
  starters: z
    .array(oneLine(80).min(1))
    .max(WEB_STARTERS_MAX)
    .meta({ description: 'Questions that a visitor may begin with.' }),
  accent: z.string().regex(/^#[0-9a-f]{6}$/, 'must be a colour like #1e90ff'),
  theme: z.enum(['auto', 'light', 'dark']).meta({ description: '`auto`: as the visitor’s system is.' }),
  side: z.enum(['end', 'start']).meta({ description: 'Where the button is: where a line ends or starts.' }),
});
export type WebSettings = z.infer<typeof WebSettings>;

/**
 * The secret that signs user ids. `id` changes with each rotation, so that tokens from an older secret become invalid.
 */
type IdentitySecret = { id: string; sealed: string; createdAt: Date };

export type WebChannel = WebSettings & { identity: IdentitySecret | null };

/** The channel of an assistant that never changed it. */
export const NO_WEB_CHANNEL: WebChannel = {
  enabled: false,
  origins: [],
  title: '',
  greeting: '',
  starters: [],
  accent: '#2557d6',
  theme: 'auto',
  side: 'end',
  identity: null,
};

const contextOf = (assistantId: string): string => `${assistantId} web identity`;

export const newIdentitySecret = (vault: Vault, assistantId: string, createdAt: Date) => {
  const secret = `wsec_${randomBytes(32).toString('base64url')}`;
  const identity: IdentitySecret = { id: newToken(), sealed: vault.seal(secret, contextOf(assistantId)), createdAt };
  return { secret, identity };
};

export const secretsOfWeb = (web: Partial<WebChannel> | undefined, assistantId: string): SecretPlace[] =>
  web?.identity ? [{ path: 'web.identity.sealed', sealed: web.identity.sealed, context: contextOf(assistantId) }] : [];

/** A user id with the signature of the customer’s server (docs/widget.md, Signed-in users). */
export const SignedUser = z.object({
  id: z
    .string()
    .min(1)
    .refine((value) => value.isWellFormed() && !/\p{Cc}/u.test(value), 'must be one line of well-formed Unicode')
    .refine((value) => [...value].length <= USER_ID_MAX, `must be at most ${USER_ID_MAX} characters`)
    .meta({ maxLength: USER_ID_MAX }),
  expires: z.int().min(0).meta({ description: 'Unix time in seconds. The signature does not count from then on.' }),
  signature: z
    .string()
    .regex(/^[0-9a-f]{64}$/, 'must be 64 digits of lower-case hex')
    .meta({ description: 'HMAC-SHA256 over `<expires>.<id>`, with the whole secret as the key.' }),
});
export type SignedUser = z.infer<typeof SignedUser>;

/** True if the customer’s server has signed the user’s id, and the signature still counts. */
export const isSignedBy = (
  { id, expires, signature }: SignedUser,
  { vault, assistantId, identity }: { vault: Vault; assistantId: string; identity: IdentitySecret },
): boolean => {
  const secret = vault.open(identity.sealed, contextOf(assistantId));
  const right = createHmac('sha256', secret).update(`${expires}.${id}`).digest();
  return timingSafeEqual(right, Buffer.from(signature, 'hex')) && expires * 1000 > serverNow();
};
