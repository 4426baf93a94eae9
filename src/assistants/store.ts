import { randomBytes } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { Connection } from 'mongoose';
import { serverDate, serverNow } from '../process/clock.ts';
import { newId } from '../process/ids.ts';
import { invalid, notFound } from '../process/errors.ts';
import { insertAtMost } from '../mongo/batches.ts';
import { collectionOf, type Indexed } from '../mongo/mongo.ts';
import type { Vault } from '../process/vault.ts';
import { validate } from '../process/validation.ts';
import { type ApiKey, apiKeyModel, hashSecret, isWellFormedApiKey, newApiKey, type StoredApiKey } from './api-keys.ts';
import {
  type Assistant,
  AssistantInput,
  assistantModels,
  DEFAULT_LIMIT_PER_MINUTE,
  type StoredAssistant,
  toAssistant,
} from './assistant.ts';
import { type ChannelChange, channelWrite } from './channel.ts';
import { createEmbedders, type Embedders } from './embedders.ts';
import { type EngineInput, sealedEngine } from './engine-settings.ts';
import { TIMING } from '../process/time-limits.ts';
import { createKnowledgeStore, type KnowledgeStore } from './knowledge-store.ts';
import { createVectorStore, type VectorStore } from './knowledge-vectors.ts';
import { createSemanticState, type SemanticState } from './semantic-state.ts';

/** The most memory of each cache, counted in characters of JSON. */
const CACHED_CHARS = 20_000_000;
/** Revoked ones count, because they stay in the list. */
const KEYS_MAX = 1_000;
const LAST_USED_EVERY_MS = 60_000;
const AFTER = { returnDocument: 'after' } as const;

type Dependencies = { connection: Connection; vault: Vault; onKnowledgeChanged?: (assistantId: string) => void };

type NewApiKey = { assistantId: string; name: string; limitPerMinute?: number };

const toApiKey = ({ _id, hash: _hash, ...stored }: StoredApiKey): ApiKey => ({ keyId: _id, ...stored });

/**
 * Assistants with their knowledge, keys and channel. `findAssistant`, `findApiKey` and `findKnowledge` are called for
 * every turn, so they use caches that are at most one second old.
 */
export type AssistantStore = KnowledgeStore & {
  models: Indexed[];
  vectors: VectorStore;
  embedders: Embedders;
  semantic: SemanticState;
  findAssistant: ((key: string) => Promise<Assistant | null>) & { knows: (key: string) => boolean };
  getAssistant: (assistantId: string) => Promise<Assistant>;

  /** The active key that a Bearer value belongs to. Malformed, unknown and revoked keys all give null. */
  findApiKey: (apiKey: string) => Promise<ApiKey | null>;

  createAssistant: (input: AssistantInput) => Promise<Assistant>;
  listAssistantIds: () => Promise<string[]>;
  listAssistants: () => Promise<Assistant[]>;
  updateAssistant: (assistantId: string, input: Partial<AssistantInput>) => Promise<Assistant>;

  /** Changes the engine. The provider's key is encrypted for this assistant; only a worker decrypts the key. */
  setEngine: (assistantId: string, input: EngineInput) => Promise<Assistant>;

  /**
   * Raises the version of the assistant's passages, after those that answers use have changed, so that workers read
   * them again. `count`: how many there are now. Without any, an assistant that never had passages stays as it is.
   */
  raisePassages: (assistantId: string, count?: number) => Promise<void>;

  /** Records how many passages exceed a worker's memory. */
  reportPassagesLeftOut: (assistantId: string, leftOut: number) => Promise<void>;

  setChannel: (assistantId: string, wanted: ChannelChange) => Promise<Assistant>;

  /** Removes the verify token of a connected channel. The channel is then open to anyone who knows its address. */
  clearChannelToken: (assistantId: string) => Promise<Assistant>;

  /** Creates an API key. Only this answer contains the full key. */
  createApiKey: (key: NewApiKey) => Promise<{ key: ApiKey; apiKey: string }>;

  getApiKey: (keyId: string) => Promise<ApiKey>;
  listApiKeys: (assistantId: string) => Promise<ApiKey[]>;
  countApiKeys: (assistantId: string) => Promise<number>;

  /**
   * Replaces the secret of a key. The id, name and limit stay, and the old secret stops working in the same write. A
   * revoked key stays revoked.
   */
  rotateApiKey: (keyId: string) => Promise<{ key: ApiKey; apiKey: string }>;

  /** Changes the name or the limit of a key. A revoked key cannot be changed. */
  updateApiKey: (keyId: string, change: Partial<Pick<ApiKey, 'name' | 'limitPerMinute'>>) => Promise<ApiKey>;

  /** Revokes a key. Revoking a revoked key changes nothing. */
  revokeApiKey: (keyId: string) => Promise<ApiKey>;
};

export const createAssistantStore = ({
  connection,
  vault,
  onKnowledgeChanged = () => undefined,
}: Dependencies): AssistantStore => {
  const { assistants, knowledge } = assistantModels(connection);
  const apiKeys = apiKeyModel(connection);
  const vectors = createVectorStore(connection, { assistants, knowledge });
  const embedders = createEmbedders(connection);

  // A missing value is cached too, so that an unknown id or key costs at most one query a second.
  const remember = <Value extends object>(fetch: (key: string) => Promise<Value | null>) => {
    const cache = new LRUCache<string, { value: Value | null }>({
      maxSize: CACHED_CHARS,
      sizeCalculation: ({ value }, key) => key.length + JSON.stringify(value).length + 200,
      ttl: TIMING.settingsCachedForMs,
      fetchMethod: async (key) => ({ value: await fetch(key) }),
    });
    const find = async (key: string): Promise<Value | null> => {
      const hit = cache.get(key) ?? (await cache.fetch(key));
      return hit?.value ?? null;
    };
    return Object.assign(find, { knows: (key: string): boolean => cache.has(key) });
  };

  const findAssistant = remember(async (assistantId: string) => {
    const stored = await assistants.findById(assistantId).lean();
    return stored && toAssistant(stored);
  });

  const findByHash = remember(async (hash: string) => {
    const stored = await apiKeys.findOne({ hash, revokedAt: null }).lean();
    return stored && toApiKey(stored);
  });

  const getAssistant = async (assistantId: string): Promise<Assistant> => {
    const found = await assistants.findById(assistantId).lean();
    if (!found) throw notFound();
    return toAssistant(found);
  };

  const getApiKey = async (keyId: string): Promise<ApiKey> => {
    const stored = await apiKeys.findById(keyId).lean();
    if (!stored) throw notFound();
    return toApiKey(stored);
  };

  /**
   * Updates the assistant that matches `filter` and returns its new state, or null if no assistant matches. The write
   * is atomic, so concurrent changes of other fields are kept.
   */
  const change = async (
    filter: Record<string, unknown>,
    update: Record<string, unknown>,
  ): Promise<Assistant | null> => {
    const stored = await assistants.findOneAndUpdate(filter, update, AFTER).lean();
    return stored && toAssistant(stored);
  };

  return {
    models: [assistants, knowledge, apiKeys, vectors.model, embedders.model],
    ...createKnowledgeStore({ assistants, knowledge, vectors, onChanged: onKnowledgeChanged }),
    vectors,
    embedders,
    semantic: createSemanticState(collectionOf(assistants)),
    findAssistant,
    getAssistant,

    findApiKey: async (apiKey) => {
      const hash = hashSecret(apiKey);
      // The checksum is checked only for a key that is not cached, because the check costs less than a query but more
      // than a cache hit.
      if (!findByHash.knows(hash) && !isWellFormedApiKey(apiKey)) return null;
      const key = await findByHash(hash);
      if (key && (key.lastUsedAt?.getTime() ?? 0) < serverNow() - LAST_USED_EVERY_MS) {
        key.lastUsedAt = serverDate();
        // The time is only shown to operators, so a lost write is harmless.
        apiKeys.updateOne({ _id: key.keyId }, { lastUsedAt: key.lastUsedAt }).catch(() => undefined);
      }
      return key;
    },

    createAssistant: async (input) => {
      const stored: StoredAssistant = {
        _id: newId(),
        ...validate(AssistantInput, input),
        sessionKey: randomBytes(32).toString('base64url'),
        channel: { connected: false, tokenHash: null, limitPerMinute: DEFAULT_LIMIT_PER_MINUTE },
        version: 1,
        knowledgePlaces: { last: 0, from: 0 },
        createdAt: serverDate(),
      };
      await assistants.create(stored);
      return toAssistant(stored);
    },

    listAssistantIds: async () => (await assistants.find().select({ _id: 1 }).lean()).map(({ _id }) => _id),

    listAssistants: async () =>
      (await assistants.find().sort({ createdAt: 1 }).lean()).map((stored) => toAssistant(stored)),

    updateAssistant: async (assistantId, input) => {
      const parsed = validate(AssistantInput.partial(), input);
      const given = Object.fromEntries(Object.entries(parsed).filter(([name]) => name in input));
      const changed = await change({ _id: assistantId }, { $set: given, $inc: { version: 1 } });
      if (!changed) throw notFound();
      return changed;
    },

    setEngine: async (assistantId, input) => {
      const engine = sealedEngine(input, { vault, assistantId });
      const stage = { $set: { engine, version: { $add: ['$version', 1] } } };
      const options = { ...AFTER, updatePipeline: true };
      const stored = await assistants.findOneAndUpdate({ _id: assistantId }, [stage], options).lean();
      if (!stored) throw notFound();
      return toAssistant(stored);
    },

    raisePassages: async (assistantId, count) => {
      const filter = { _id: assistantId, ...(!count && { passages: { $exists: true } }) };
      const update = {
        $inc: { 'passages.version': 1 },
        ...(count !== undefined && { $set: { 'passages.count': count } }),
      };
      await assistants.updateOne(filter, update);
    },

    reportPassagesLeftOut: async (assistantId, leftOut) => {
      const filter = { _id: assistantId, 'passages.leftOut': { $ne: leftOut }, passages: { $exists: true } };
      await assistants.updateOne(filter, { $set: { 'passages.leftOut': leftOut } });
    },

    setChannel: async (assistantId, wanted) => {
      const { expected, set } = channelWrite(wanted);
      const changed = await change({ _id: assistantId, ...expected }, { $set: set });
      if (changed) return changed;
      await getAssistant(assistantId);
      // A channel must never become open because a field was omitted.
      throw invalid('token', 'required', 'must be a token, or null for an open channel');
    },

    clearChannelToken: async (assistantId) => {
      const changed = await change({ _id: assistantId }, { $set: { 'channel.tokenHash': null } });
      if (!changed) throw notFound();
      return changed;
    },

    createApiKey: async ({ assistantId, name, limitPerMinute }) => {
      await getAssistant(assistantId);
      const apiKey = newApiKey();
      const stored: StoredApiKey = {
        _id: newId(),
        hash: hashSecret(apiKey),
        assistantId,
        name,
        lastFour: apiKey.slice(-4),
        limitPerMinute: limitPerMinute ?? DEFAULT_LIMIT_PER_MINUTE,
        createdAt: serverDate(),
        lastUsedAt: null,
        revokedAt: null,
      };
      const tooMany = () =>
        invalid('name', 'too_many', `an assistant has at most ${KEYS_MAX} keys, revoked ones included: rotate one`);
      await insertAtMost(
        { collection: collectionOf(apiKeys), filter: { assistantId }, max: KEYS_MAX, tooMany },
        stored,
      );
      return { key: toApiKey(stored), apiKey };
    },

    getApiKey,

    listApiKeys: async (assistantId) =>
      (await apiKeys.find({ assistantId }).sort({ createdAt: -1 }).lean()).map((stored) => toApiKey(stored)),

    countApiKeys: (assistantId) => apiKeys.countDocuments({ assistantId, revokedAt: null }).exec(),

    rotateApiKey: async (keyId) => {
      const apiKey = newApiKey();
      const change = { hash: hashSecret(apiKey), lastFour: apiKey.slice(-4), lastUsedAt: null };
      const stored = await apiKeys.findOneAndUpdate({ _id: keyId, revokedAt: null }, change, AFTER).lean();
      if (!stored) throw notFound();
      return { key: toApiKey(stored), apiKey };
    },

    updateApiKey: async (keyId, change) => {
      const stored = await apiKeys.findOneAndUpdate({ _id: keyId, revokedAt: null }, { $set: change }, AFTER).lean();
      if (!stored) throw notFound();
      return toApiKey(stored);
    },

    revokeApiKey: async (keyId) => {
      await apiKeys.updateOne({ _id: keyId, revokedAt: null }, { revokedAt: serverDate() });
      return getApiKey(keyId);
    },
  };
};
