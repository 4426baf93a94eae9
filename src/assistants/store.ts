import { randomBytes } from 'node:crypto';
import type { Connection, mongo } from 'mongoose';
import { serverDate } from '../platform/process/clock.ts';
import { newId } from '../platform/process/ids.ts';
import { cachedSettings, type CachedFind, createSharedMemory, type SharedMemory } from '../platform/process/lru.ts';
import { conflict, invalid, notFound, orNotFound } from '../platform/process/errors.ts';
import { collect, inPages } from '../platform/mongo/batches.ts';
import { collectionOf, type Indexed, inTurn } from '../platform/mongo/mongo.ts';
import type { SecretsFound, Vault } from '../platform/process/vault.ts';
import { validate } from '../platform/process/validation.ts';
import { type ApiKeyStore, createApiKeyStore, hashSecret, newSecret } from './api-keys.ts';
import {
  type Assistant,
  AssistantInput,
  assistantModels,
  DEFAULT_LIMIT_PER_MINUTE,
  DRAFTED_FIELDS,
  type DraftedSettings,
  type StoredAssistant,
  toAssistant,
} from './assistant.ts';
import { type ChannelChange, channelWrite } from './channel.ts';
import { createDrafts, type Drafts, type EditOptions } from './drafts/drafts.ts';
import {
  createEmbedders,
  createSemanticState,
  type Embedders,
  type SemanticState,
} from './knowledge/semantic-state.ts';
import {
  type EngineInput,
  newIdentitySecret,
  sealedEngine,
  sealEngine,
  type WebChannel,
  WebSettings,
} from './settings.ts';
import type { KnowledgeEntry, KnowledgeInput } from './knowledge/entry.ts';
import { type AddOptions, createKnowledgeStore, type KnowledgeStore, LIST_BATCH } from './knowledge/store.ts';
import { createVectorStore, type VectorStore } from './knowledge/vectors.ts';
import { createVersions, type VersionedSources, type VersionStore } from './drafts/versions.ts';

/** How many names of a list are decoded at once. */
const NAMES_AT_ONCE = 200;
/** Fields that a list of assistants leaves out. */
const NOT_LISTED = { web: 0, semantic: 0, passages: 0, knowledgePlaces: 0, textLanguage: 0 } as const;
export type ListedAssistant = Omit<Assistant, 'web' | 'semantic' | 'passages' | 'textLanguage'>;
const AFTER = { returnDocument: 'after' } as const;

/** How many passages an assistant has, live and in the draft, and the main language of the live ones. */
type CountPassages = () => Promise<{ live: number; drafted: number; language?: string | null }>;

type Dependencies = {
  connection: Connection;
  vault: Vault;
  sources: VersionedSources;
  onKnowledgeChanged?: (assistantId: string) => void;
  memory?: SharedMemory;
};

/** Changes of knowledge are of the draft, if there is one, so they are declared below. */
type Parts = Omit<ApiKeyStore, 'model'> &
  Omit<KnowledgeStore, 'addKnowledge' | 'updateKnowledge' | 'removeKnowledge' | 'noteLanguage'>;

/**
 * Assistants with their knowledge, keys and channel. `findAssistant`, `findApiKey` and `findKnowledge` are called for
 * every turn, so they use caches that are at most one second old.
 */
export type AssistantStore = Parts & {
  models: Indexed[];
  vectors: VectorStore;
  embedders: Embedders;
  semantic: SemanticState;
  drafts: Drafts;
  versions: Pick<VersionStore, 'keepResult' | 'list'>;

  /** Changes of knowledge. With the setting `drafts` they change the draft. */
  addKnowledge: (
    assistantId: string,
    entries: KnowledgeInput[],
    options?: EditOptions & AddOptions,
  ) => Promise<KnowledgeEntry[]>;
  updateKnowledge: (
    assistantId: string,
    entryId: string,
    entry: KnowledgeInput,
    options?: EditOptions,
  ) => Promise<KnowledgeEntry>;
  removeKnowledge: (assistantId: string, entryIds: string[], options?: EditOptions) => Promise<void>;

  findAssistant: CachedFind<Assistant>;
  getAssistant: (assistantId: string) => Promise<Assistant>;

  createAssistant: (input: AssistantInput, options?: EditOptions) => Promise<Assistant>;
  /** The ids of all assistants, or of those in `only`. */
  listAssistantIds: (only?: string[] | null) => Promise<string[]>;
  /** The key of each assistant's sessions, of at most so many assistants. */
  listSessionKeys: (most: number) => Promise<string[]>;
  /** The same ids with the names, the oldest assistant first. */
  listNames: (only?: string[] | null) => Promise<{ assistantId: string; name: string }[]>;
  /** The assistants in pages, the oldest first, so that they are never all in memory. */
  readAssistants: (only: string[] | null, signal: AbortSignal) => AsyncGenerator<ListedAssistant[], undefined>;
  /** Assistants whose escalations somebody must take in time. */
  listIdsWithTakeWithin: () => Promise<string[]>;
  /** Assistants whose conversations are erased `keepDays` days after their last change. */
  listKeepDays: () => Promise<{ assistantId: string; keepDays: number }[]>;

  /** Changes the assistant, or its draft if it has drafts. Returns the assistant with the change. */
  updateAssistant: (assistantId: string, input: Partial<AssistantInput>, options?: EditOptions) => Promise<Assistant>;

  /** Changes the engine. The provider's key is encrypted for this assistant; only a worker decrypts the key. */
  setEngine: (assistantId: string, input: EngineInput, options?: EditOptions) => Promise<Assistant>;

  /**
   * Raises the version of the assistant's passages, after the passages that answers use have changed, so that workers
   * read them again. `countNow` is called again if the version was raised meanwhile, so that a count which is stored later
   * is never an older one. An assistant that never had passages, and has none now, is not changed.
   */
  raisePassages: (assistantId: string, countNow?: CountPassages) => Promise<void>;

  /** Records how many passages exceed a worker's memory. */
  reportPassagesLeftOut: (assistantId: string, leftOut: number) => Promise<void>;

  setChannel: (assistantId: string, wanted: ChannelChange) => Promise<Assistant>;

  /** Removes the verify token of a connected channel. The channel is then open to anyone who knows its address. */
  clearChannelToken: (assistantId: string) => Promise<Assistant>;

  /**
   * Makes the address of a connected channel that has a secret in its path. Only this answer contains the secret. The
   * address before ends at once.
   */
  rotateSecretAddress: (assistantId: string) => Promise<{ assistant: Assistant; secret: string }>;

  /** Removes that address. */
  removeSecretAddress: (assistantId: string) => Promise<Assistant>;

  /** Changes the given fields of the web channel. */
  setWeb: (assistantId: string, wanted: Partial<WebSettings>) => Promise<Assistant>;

  /**
   * Replaces the secret that signs user ids. Only this answer contains it. Signatures by the old secret are invalid at
   * once.
   */
  rotateWebIdentity: (assistantId: string) => Promise<{ assistant: Assistant; secret: string }>;

  /** Removes the secret that signs user ids: they are no longer accepted. */
  removeWebIdentity: (assistantId: string) => Promise<Assistant>;

  /** Seals all secrets again that an older key has sealed, one assistant after the other. A dry run counts them. */
  resealSecrets: (options: { dryRun: boolean }) => AsyncGenerator<SecretsFound, undefined>;
};

export const createAssistantStore = ({
  connection,
  vault,
  sources,
  onKnowledgeChanged = () => undefined,
  memory = createSharedMemory(),
}: Dependencies): AssistantStore => {
  const { assistants, knowledge } = assistantModels(connection);
  const vectors = createVectorStore(connection, { assistants, knowledge });
  const embedders = createEmbedders(connection);

  const live = createKnowledgeStore({ assistants, knowledge, vectors, onChanged: onKnowledgeChanged, memory });
  const versions = createVersions({
    connection,
    assistants,
    knowledge,
    sources,
    retireVectors: vectors.retire,
    onPublished: async (assistantId) => {
      onKnowledgeChanged(assistantId);
      await live.noteLanguage(assistantId);
    },
  });
  const drafts = createDrafts({ connection, assistants, knowledge, versions, sources, vault, memory });

  const findAssistant = cachedSettings(async (assistantId: string) => {
    const stored = await assistants.findById(assistantId).lean();
    return stored && toAssistant(stored);
  });

  const getAssistant = async (assistantId: string): Promise<Assistant> => {
    return toAssistant(orNotFound(await assistants.findById(assistantId).lean()));
  };

  const { model: keyModel, ...apiKeys } = createApiKeyStore(connection, getAssistant);

  /**
   * Updates the assistant that matches `filter` and returns its new state, or null if no assistant matches. The write
   * is atomic, so concurrent changes of other fields are kept.
   */
  const change = async (
    filter: Record<string, unknown>,
    update: Record<string, unknown>,
  ): Promise<Assistant | null> => {
    let changed: Assistant | null = null;
    // This waits while a draft is being published, which takes seconds.
    await inTurn(connection, async (session) => {
      const stored = await assistants.findOneAndUpdate(filter, update, { ...AFTER, session }).lean();
      changed = stored && toAssistant(stored);
    });
    return changed;
  };

  const among = (only: string[] | null = null) => (only === null ? {} : { _id: { $in: only } });

  const oldestFirst = (only: string[] | null = null, options: mongo.FindOptions & mongo.Abortable) =>
    collectionOf(assistants)
      .find(among(only), { ...options, ...(only && { hint: '_id_' }) })
      .sort({ createdAt: 1, _id: 1 });

  async function* readAssistants(
    only: string[] | null,
    signal: AbortSignal,
  ): AsyncGenerator<ListedAssistant[], undefined> {
    const rows = oldestFirst(only, { projection: NOT_LISTED, batchSize: LIST_BATCH, signal });
    for await (const page of inPages(rows)) yield page.map(toAssistant);
  }

  const changeWeb = async (assistantId: string, fields: Partial<WebChannel>): Promise<Assistant> => {
    const set = Object.fromEntries(Object.entries(fields).map(([name, value]) => [`web.${name}`, value]));
    return orNotFound(await change({ _id: assistantId }, { $set: set }));
  };

  async function* resealSecrets(options: { dryRun: boolean }): AsyncGenerator<SecretsFound, undefined> {
    const ids = collectionOf(assistants).find({}, { projection: { _id: 1 } });
    for await (const { _id } of ids.sort({ _id: 1 })) yield drafts.resealSecrets(_id, options);
  }

  const hasDrafts = async (assistantId: string): Promise<boolean> => (await getAssistant(assistantId)).drafts;

  return {
    models: [assistants, knowledge, keyModel, vectors.model, embedders.model, ...drafts.models, ...versions.models],
    ...live,
    ...apiKeys,
    drafts,
    versions,

    addKnowledge: async (assistantId, entries, options = {}) =>
      (await hasDrafts(assistantId))
        ? drafts.addEntries(assistantId, entries, options)
        : live.addKnowledge(assistantId, entries, options),

    updateKnowledge: async (assistantId, entryId, entry, options = {}) => {
      if (!(await hasDrafts(assistantId))) return live.updateKnowledge(assistantId, entryId, entry);
      await drafts.updateEntry(assistantId, entryId, entry, options);
      return { entryId, ...entry };
    },

    removeKnowledge: async (assistantId, entryIds, options = {}) =>
      (await hasDrafts(assistantId))
        ? drafts.removeEntries(assistantId, entryIds, options)
        : live.removeKnowledge(assistantId, entryIds),

    vectors,
    embedders,
    semantic: createSemanticState(collectionOf(assistants)),
    findAssistant,
    getAssistant,

    createAssistant: async (input, options = {}) => {
      const { drafts: wantsDrafts, ...settings } = validate(AssistantInput, input);
      const stored: StoredAssistant = {
        _id: newId(),
        ...settings,
        sessionKey: randomBytes(32).toString('base64url'),
        channel: { connected: false, tokenHash: null, limitPerMinute: DEFAULT_LIMIT_PER_MINUTE },
        version: 1,
        knowledgePlaces: { last: 0, from: 0 },
        createdAt: serverDate(),
      };
      await collectionOf(assistants).insertOne(stored);
      if (!wantsDrafts) return toAssistant(stored);
      await drafts.setDrafts(stored._id, true, options);
      return getAssistant(stored._id);
    },

    // Without the hint, MongoDB reads all documents, of which one may have tens of kilobytes.
    listAssistantIds: async (only) =>
      (await assistants.find(among(only)).select({ _id: 1 }).hint({ _id: 1 }).lean()).map(({ _id }) => _id),

    listSessionKeys: async (most) =>
      (await assistants.find({}).select({ sessionKey: 1 }).limit(most).lean()).map(({ sessionKey }) => sessionKey),

    listNames: async (only) =>
      (await collect(oldestFirst(only, { projection: { name: 1 } }), NAMES_AT_ONCE)).map(({ _id, name }) => {
        return { assistantId: _id, name };
      }),

    readAssistants,

    listIdsWithTakeWithin: async () => {
      const found = await assistants
        .find({ takeWithinMinutes: { $gt: 0 } })
        .select({ _id: 1 })
        .lean();
      return found.map(({ _id }) => _id);
    },

    listKeepDays: async () => {
      const found = await assistants
        .find({ keepDays: { $gt: 0 } })
        .select({ keepDays: 1 })
        .lean();
      return found.map(({ _id, keepDays }) => ({ assistantId: _id, keepDays: keepDays as number }));
    },

    updateAssistant: async (assistantId, input, options = {}) => {
      const { drafts: wantsDrafts, ...parsed } = validate(AssistantInput.partial(), input);
      const given = Object.entries(parsed).filter(([name]) => name in input);
      if ('drafts' in input && wantsDrafts !== undefined) await drafts.setDrafts(assistantId, wantsDrafts, options);
      const isDrafted = (await hasDrafts(assistantId))
        ? ([name]: (typeof given)[number]) => (DRAFTED_FIELDS as readonly string[]).includes(name)
        : () => false;
      const drafted = Object.fromEntries(given.filter(isDrafted));
      if (Object.keys(drafted).length > 0) await drafts.setSettings(assistantId, () => drafted, options);
      const set = Object.fromEntries(given.filter((one) => !isDrafted(one)));
      const changed =
        Object.keys(set).length === 0 && Object.keys(input).length > 0
          ? await getAssistant(assistantId)
          : await change({ _id: assistantId }, { $set: set, $inc: { version: 1 } });
      if (!changed) throw notFound();
      return drafts.apply(changed);
    },

    setEngine: async (assistantId, input, options = {}) => {
      if (await hasDrafts(assistantId)) {
        const engineAfter = ({ engine }: DraftedSettings) => sealEngine(input, engine, { vault, assistantId });
        await drafts.setSettings(assistantId, (before) => ({ engine: engineAfter(before) }), options);
        return drafts.apply(await getAssistant(assistantId));
      }
      const engine = sealedEngine(input, { vault, assistantId });
      const stage = { $set: { engine, version: { $add: ['$version', 1] } } };
      const stored = await assistants
        .findOneAndUpdate({ _id: assistantId }, [stage], { ...AFTER, updatePipeline: true })
        .lean();
      return toAssistant(orNotFound(stored));
    },

    raisePassages: async (assistantId, countNow) => {
      const raise = { $inc: { 'passages.version': 1 } };
      if (!countNow) {
        await assistants.updateOne({ _id: assistantId, passages: { $exists: true } }, raise);
        return;
      }
      for (let isRaised = false; !isRaised; ) {
        const stored = await assistants.findById(assistantId).select({ passages: 1 }).lean();
        const { live, drafted, language = null } = await countNow();
        if (!stored || (!stored.passages && live + drafted === 0)) return;
        const filter = { _id: assistantId, 'passages.version': stored.passages?.version ?? null };
        const $set = { 'passages.count': live, 'textLanguage.passages': language };
        const { matchedCount } = await assistants.updateOne(filter, { ...raise, $set });
        isRaised = matchedCount === 1;
      }
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
      return orNotFound(await change({ _id: assistantId }, { $set: { 'channel.tokenHash': null } }));
    },

    rotateSecretAddress: async (assistantId) => {
      const secret = newSecret('vp_');
      const secretAddress = { hash: hashSecret(secret), createdAt: serverDate() };
      const update = { $set: { 'channel.secretAddress': secretAddress } };
      const assistant = await change({ _id: assistantId, 'channel.connected': true }, update);
      if (assistant) return { assistant, secret };
      await getAssistant(assistantId);
      throw conflict('Connect the channel first.');
    },

    removeSecretAddress: async (assistantId) => {
      return orNotFound(await change({ _id: assistantId }, { $set: { 'channel.secretAddress': null } }));
    },

    setWeb: async (assistantId, wanted) => {
      const parsed = validate(WebSettings.partial(), wanted);
      const given = Object.entries(parsed).filter(([name]) => name in wanted);
      return changeWeb(assistantId, Object.fromEntries(given));
    },

    rotateWebIdentity: async (assistantId) => {
      const { secret, identity } = newIdentitySecret(vault, assistantId, serverDate());
      return { assistant: await changeWeb(assistantId, { identity }), secret };
    },

    removeWebIdentity: (assistantId) => changeWeb(assistantId, { identity: null }),

    resealSecrets,
  };
};
