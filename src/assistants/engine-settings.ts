import * as z from 'zod';
import { TIMING } from '../process/time-limits.ts';
import type { Vault } from '../process/vault.ts';
import { validate } from '../process/validation.ts';

const DEFAULT_PROVIDER_TIMEOUT_MS = TIMING.providerTimeoutMs;

/**
 * Removes trailing slashes. A loop does this, because a regular expression for trailing slashes takes quadratic time.
 */
export const withoutSlashes = (address: string): string => {
  let end = address.length;
  while (address[end - 1] === '/') end -= 1;
  return address.slice(0, end);
};

/**
 * The base URL of an OpenAI-compatible API, without `/chat/completions`. The address guard checks the URL at each call.
 */
const BaseUrl = z
  .url({ protocol: /^https?$/ })
  .max(2048)
  .refine((value) => {
    const url = URL.parse(value);
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

/** The engine without its provider key. The view shows only whether a key is stored. */
export const toEngineView = (engine: EngineSettings) => {
  if (engine.kind === 'retrieval') return engine;
  const { apiKeySealed, ...settings } = engine;
  return { ...settings, apiKey: apiKeySealed === null ? 'none' : 'configured' };
};
