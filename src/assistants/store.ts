import { randomBytes } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { Connection } from 'mongoose';
import { serverDate, serverNow } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import { notFound } from '../platform/errors.ts';
import type { Vault } from '../platform/vault.ts';
import { type ApiKey, apiKeyModel, hashSecret, isWellFormedApiKey, newApiKey, type StoredApiKey } from './api-keys.ts';
import {
  type Assistant,
  AssistantInput,
  assistantModels,
  DEFAULT_LIMIT_PER_MINUTE,
  type KnowledgeEntry,
  type KnowledgeInput,
  type StoredAssistant,
  toAssistant,
} from './assistant.ts';
import { type EngineInput, sealEngine } from './engine-settings.ts';
import { applyChannelChange, type ChannelChange } from './channel.ts';

/** Changes take effect in every process within 1 s (contract §7): nothing is believed for longer than this. */
const BELIEVED_FOR_MS = 900;
const CACHED_ITEMS = 10_000;
const LAST_USED_EVERY_MS = 60_000;

type NewApiKey = { assistantId: string; name: string; limitPerMinute?: number };

const toApiKey = ({ _id, hash: _hash, ...stored }: StoredApiKey): ApiKey => ({ keyId: _id, ...stored });

/**
 * Assistants with their knowledge, keys and channel. The `find…` functions of the hot path (`findAssistant`,
 * `findApiKey`, `findKnowledge`) answer from memory for less than a second.
 */
export const createAssistantStore = ({ connection, vault }: { connection: Connection; vault: Vault }) => {
  const { assistants, knowledge } = assistantModels(connection);
  const apiKeys = apiKeyModel(connection);

  // `null` is cached too: an unknown id or key costs one look-up a second, however often it is sent.
  const remember = <Value extends object>(fetch: (key: string) => Promise<Value | null>) => {
    const cache = new LRUCache<string, { value: Value | null }>({
      max: CACHED_ITEMS,
      ttl: BELIEVED_FOR_MS,
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

  const knowledgeByVersion = new LRUCache<string, { version: number; entries: KnowledgeEntry[] }>({ max: 1000 });

  const loadKnowledge = async (assistantId: string): Promise<KnowledgeEntry[]> => {
    const rows = await knowledge.find({ assistantId }).sort({ position: 1 }).lean();
    return rows.map(({ _id, assistantId: _assistant, position: _position, ...entry }) => ({
      ...entry,
      entryId: _id,
    }));
  };

  const getAssistant = async (assistantId: string): Promise<Assistant> => {
    const found = await assistants.findById(assistantId).lean();
    if (!found) throw notFound();
    return toAssistant(found);
  };

  const changeAssistant = async (assistantId: string, change: Record<string, unknown>): Promise<void> => {
    const { matchedCount } = await assistants.updateOne({ _id: assistantId }, change);
    if (matchedCount === 0) throw notFound();
  };

  return {
    models: [assistants, knowledge, apiKeys],
    findAssistant,
    getAssistant,

    /** The live key behind a Bearer value, or null: malformed, unknown and revoked look the same. */
    findApiKey: async (apiKey: string): Promise<ApiKey | null> => {
      const hash = hashSecret(apiKey);
      // The checksum spares the store a look-up, and costs more than finding a key that is known.
      if (!findByHash.knows(hash) && !isWellFormedApiKey(apiKey)) return null;
      const key = await findByHash(hash);
      if (key && (key.lastUsedAt?.getTime() ?? 0) < serverNow() - LAST_USED_EVERY_MS) {
        key.lastUsedAt = serverDate();
        // Shown to people only; losing one of these writes is harmless.
        apiKeys.updateOne({ _id: key.keyId }, { lastUsedAt: key.lastUsedAt }).catch(() => undefined);
      }
      return key;
    },

    /** Entries in their order, kept in memory for as long as the assistant's version stays. */
    findKnowledge: async ({ assistantId, version }: Assistant): Promise<KnowledgeEntry[]> => {
      const known = knowledgeByVersion.get(assistantId);
      if (known?.version === version) return known.entries;
      const entries = await loadKnowledge(assistantId);
      knowledgeByVersion.set(assistantId, { version, entries });
      return entries;
    },

    createAssistant: async (input: AssistantInput): Promise<Assistant> => {
      const stored: StoredAssistant = {
        _id: newId(),
        ...AssistantInput.parse(input),
        sessionKey: randomBytes(32).toString('base64url'),
        channel: { connected: false, tokenHash: null, limitPerMinute: DEFAULT_LIMIT_PER_MINUTE },
        version: 1,
        createdAt: serverDate(),
      };
      await assistants.create(stored);
      return toAssistant(stored);
    },

    listAssistants: async (): Promise<Assistant[]> =>
      (await assistants.find().sort({ createdAt: 1 }).lean()).map((stored) => toAssistant(stored)),

    updateAssistant: async (assistantId: string, input: Partial<AssistantInput>): Promise<Assistant> => {
      const parsed = AssistantInput.partial().parse(input);
      const given = Object.fromEntries(Object.entries(parsed).filter(([name]) => name in input));
      await changeAssistant(assistantId, { $set: given, $inc: { version: 1 } });
      return getAssistant(assistantId);
    },

    /** Adds entries after those there are. The version is raised last, so that nobody indexes half of them for long. */
    addKnowledge: async (assistantId: string, entries: KnowledgeInput[]): Promise<KnowledgeEntry[]> => {
      await getAssistant(assistantId);
      const position = (await knowledge.findOne({ assistantId }).sort({ position: -1 }).lean())?.position ?? 0;
      const rows = entries.map((entry, index) => ({
        _id: newId(),
        assistantId,
        position: position + index + 1,
        ...entry,
      }));
      await knowledge.insertMany(rows);
      await changeAssistant(assistantId, { $inc: { version: 1 } });
      return rows.map(({ _id, assistantId: _assistant, position: _position, ...entry }) => ({
        ...entry,
        entryId: _id,
      }));
    },

    /** The entry keeps its id and its place. */
    updateKnowledge: async (assistantId: string, entryId: string, entry: KnowledgeInput): Promise<KnowledgeEntry> => {
      const { matchedCount } = await knowledge.updateOne({ _id: entryId, assistantId }, { $set: entry });
      if (matchedCount === 0) throw notFound();
      await changeAssistant(assistantId, { $inc: { version: 1 } });
      return { entryId, ...entry };
    },

    removeKnowledge: async (assistantId: string, entryIds?: string[]): Promise<void> => {
      await knowledge.deleteMany({ assistantId, ...(entryIds && { _id: { $in: entryIds } }) });
      await changeAssistant(assistantId, { $inc: { version: 1 } });
    },

    listKnowledge: loadKnowledge,

    /** The provider's key is sealed for this assistant; nothing gives it back but the vault of a worker. */
    setEngine: async (assistantId: string, input: EngineInput): Promise<Assistant> => {
      const { engine: previous } = await getAssistant(assistantId);
      const engine = sealEngine(input, { vault, assistantId, previous });
      await changeAssistant(assistantId, { $set: { engine }, $inc: { version: 1 } });
      return getAssistant(assistantId);
    },

    setChannel: async (assistantId: string, change: ChannelChange): Promise<Assistant> => {
      const { channel } = await getAssistant(assistantId);
      await changeAssistant(assistantId, { $set: { channel: applyChannelChange(channel, change) } });
      return getAssistant(assistantId);
    },

    /** The key in full is in this answer and nowhere else, ever again. */
    createApiKey: async ({
      assistantId,
      name,
      limitPerMinute,
    }: NewApiKey): Promise<{ key: ApiKey; apiKey: string }> => {
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
      await apiKeys.create(stored);
      return { key: toApiKey(stored), apiKey };
    },

    listApiKeys: async (assistantId: string): Promise<ApiKey[]> =>
      (await apiKeys.find({ assistantId }).sort({ createdAt: -1 }).lean()).map((stored) => toApiKey(stored)),

    /** A new secret under the same id, name and limit; the old one ends in the same write. A revoked key stays revoked. */
    rotateApiKey: async (keyId: string): Promise<{ key: ApiKey; apiKey: string }> => {
      const apiKey = newApiKey();
      const change = { hash: hashSecret(apiKey), lastFour: apiKey.slice(-4), lastUsedAt: null };
      const options = { returnDocument: 'after' } as const;
      const stored = await apiKeys.findOneAndUpdate({ _id: keyId, revokedAt: null }, change, options).lean();
      if (!stored) throw notFound();
      return { key: toApiKey(stored), apiKey };
    },

    /** Another name or limit; a revoked key stays as it was. */
    updateApiKey: async (keyId: string, change: Partial<Pick<ApiKey, 'name' | 'limitPerMinute'>>): Promise<ApiKey> => {
      const options = { returnDocument: 'after' } as const;
      const stored = await apiKeys.findOneAndUpdate({ _id: keyId, revokedAt: null }, { $set: change }, options).lean();
      if (!stored) throw notFound();
      return toApiKey(stored);
    },

    /** Revoking twice is a no-op. */
    revokeApiKey: async (keyId: string): Promise<ApiKey> => {
      await apiKeys.updateOne({ _id: keyId, revokedAt: null }, { revokedAt: serverDate() });
      const stored = await apiKeys.findById(keyId).lean();
      if (!stored) throw notFound();
      return toApiKey(stored);
    },
  };
};

export type AssistantStore = ReturnType<typeof createAssistantStore>;
