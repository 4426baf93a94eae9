import * as z from 'zod';
import { TIMING } from '../platform/timing.ts';
import type { Vault } from '../platform/vault.ts';
import { validate } from '../platform/validation.ts';

export const DEFAULT_PROVIDER_TIMEOUT_MS = TIMING.providerTimeoutMs;

/** A pattern for the end tries every slash before it. */
export const withoutSlashes = (address: string): string => {
  let end = address.length;
  while (address[end - 1] === '/') end -= 1;
  return address.slice(0, end);
};

/** The address of an OpenAI-compatible API, up to the part before `/chat/completions`. Who may be reached is asked at the call. */
const BaseUrl = z
  .url({ protocol: /^https?$/ })
  .max(2048)
  .refine((value) => {
    const url = URL.parse(value);
    if (!url) return true; // said already
    return url.username === '' && url.password === '' && url.search === '' && url.hash === '';
  }, 'must not carry a user, a query or a fragment')
  .transform(withoutSlashes);

const provider = {
  kind: z.literal('openai'),
  baseUrl: BaseUrl,
  model: z.string().trim().min(1).max(200),
  /** From the question to the last word; below the reply wait, so that there is time to fall back. */
  timeoutMs: z.number().int().min(100).max(TIMING.providerTimeoutMaxMs).default(DEFAULT_PROVIDER_TIMEOUT_MS),
  temperature: z.number().min(0).max(2).nullable().default(null),
  maxTokens: z.number().int().min(16).max(4_000).default(800),
  /** What earlier messages may take of the model's window. */
  historyTokens: z.number().int().min(0).max(100_000).default(2_000),
};

/** `apiKey` left out = the one stored already, if the address stays the same; null = none. */
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
 * The engine as an expression of MongoDB: whether a stored key stays is decided in the write itself, so that a key set at
 * the same moment is not undone. A key stored for one address is never sent to another.
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

/** What people may see of it: that there is a key, never the key. */
export const toEngineView = (engine: EngineSettings) => {
  if (engine.kind === 'retrieval') return engine;
  const { apiKeySealed, ...settings } = engine;
  return { ...settings, apiKey: apiKeySealed === null ? 'none' : 'configured' };
};
