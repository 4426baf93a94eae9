import { createHash, randomBytes } from 'node:crypto';
import type { Connection } from 'mongoose';
import * as z from 'zod';
import { insertAtMost } from '../platform/mongo/batches.ts';
import { collectionOf, type Indexed, schemaOf } from '../platform/mongo/mongo.ts';
import { HOUR_MS, serverDate, serverNow } from '../platform/process/clock.ts';
import { invalid, orNotFound } from '../platform/process/errors.ts';
import { newId } from '../platform/process/ids.ts';
import { cachedSettings, createLru } from '../platform/process/lru.ts';
import { createSlices } from '../platform/process/slices.ts';
import { DEFAULT_LIMIT_PER_MINUTE } from './assistant.ts';

const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const BODY_LENGTH = 43; // 32 bytes in base 62
const CHECKSUM_LENGTH = 6;

const toBase62 = (bytes: Buffer, length: number): string => {
  let value = BigInt(`0x${bytes.toString('hex')}`);
  let text = '';
  for (let index = 0; index < length; index += 1) {
    text = BASE62[Number(value % 62n)] + text;
    value /= 62n;
  }
  return text;
};

const checksumOf = (body: string): string =>
  toBase62(createHash('sha256').update(body).digest().subarray(0, 5), CHECKSUM_LENGTH);

/** A new secret: a prefix that names the kind of secret, then 32 random bytes in base 62. */
export const newSecret = (prefix: string): string => prefix + toBase62(randomBytes(32), BODY_LENGTH);
export const SECRET_BODY = `[0-9A-Za-z]{${BODY_LENGTH}}`;

/**
 * A new API key: `sk_`, 32 random bytes in base 62, and a checksum (docs/contract.md, Keys and tokens). The key is
 * shown once; only its hash is stored.
 */
const newApiKey = (): string => {
  const body = newSecret('');
  return `sk_${body}${checksumOf(body)}`;
};

const SHAPE = new RegExp(`^sk_(${SECRET_BODY})([0-9A-Za-z]{${CHECKSUM_LENGTH}})$`);

/** Detects mistyped and invented keys by their checksum, without a database query. */
const isWellFormedApiKey = (apiKey: string): boolean => {
  const match = SHAPE.exec(apiKey);
  return match !== null && checksumOf(match[1] as string) === match[2];
};

/**
 * The hash under which a secret is stored. A secret with this much entropy needs no slow hash: SHA-256 is enough to
 * make the secret impossible to read from the database.
 */
export const hashSecret = (secret: string): string => createHash('sha256').update(secret).digest('base64url');

export const MAX_OVERLAP_HOURS = 168;
/** How long the old secret stays valid after a rotation. */
export const OverlapHours = z.number().min(0).max(MAX_OVERLAP_HOURS).default(0);

export type ApiKey = {
  keyId: string;
  assistantId: string;
  name: string;
  lastFour: string;
  limitPerMinute: number;
  /** New turns of a month (UTC). Null: no quota. */
  turnsPerMonth: number | null;
  createdAt: Date;
  lastUsedAt: Date | null;
  revokedAt: Date | null;
  /** The key before the last rotation is valid until this time. Null if there was no overlap, or it has ended. */
  overlapUntil: Date | null;
};

/** The key before the last rotation, with the end of its overlap. */
type PreviousKey = { hash: string; until: Date };

/** Keys that were created before there were quotas have no `turnsPerMonth`. */
type StoredApiKey = Omit<ApiKey, 'keyId' | 'turnsPerMonth' | 'overlapUntil'> &
  Partial<Pick<ApiKey, 'turnsPerMonth'>> & { _id: string; hash: string; previous?: PreviousKey };

const apiKeySchema = schemaOf<StoredApiKey>('apiKeys');
apiKeySchema.index({ hash: 1 }, { unique: true });
apiKeySchema.index({ 'previous.hash': 1 }, { sparse: true });
apiKeySchema.index({ assistantId: 1, createdAt: -1 });

const apiKeyModel = (connection: Connection) => connection.model<StoredApiKey>('ApiKey', apiKeySchema);

/** How many keys an assistant may have. Revoked keys count, because they are still listed. */
const KEYS_MAX = 1_000;
/** How many keys come in one answer of MongoDB. All at once would hold the event loop for many milliseconds. */
const LISTED_AT_ONCE = 100;
const KEYS_KNOWN = 10_000;
const LAST_USED_EVERY_MS = 60_000;
const AFTER = { returnDocument: 'after' } as const;

type NewApiKey = { assistantId: string; name: string; limitPerMinute?: number; turnsPerMonth?: number | null };

export type ApiKeyStore = {
  model: Indexed;

  /** The active key that a Bearer value belongs to. Malformed, unknown and revoked keys all give null. */
  findApiKey: (apiKey: string) => Promise<ApiKey | null>;

  /** True if this process has found the key before. It may have been revoked since. */
  hasFoundApiKey: (apiKey: string) => boolean;

  /** Creates an API key. Only this answer contains the full key. */
  createApiKey: (key: NewApiKey) => Promise<{ key: ApiKey; apiKey: string }>;

  getApiKey: (keyId: string) => Promise<ApiKey>;
  listApiKeys: (assistantId: string) => Promise<ApiKey[]>;
  countApiKeys: (assistantId: string) => Promise<number>;

  /**
   * Replaces the secret of a key. The id, name and limits are kept. The old secret stays valid for `overlapHours`
   * (0–168, default 0); one that an earlier rotation kept ends in the same write. A revoked key stays revoked.
   */
  rotateApiKey: (keyId: string, overlapHours?: number) => Promise<{ key: ApiKey; apiKey: string }>;

  /** Changes the name or the limits of a key. A revoked key cannot be changed. */
  updateApiKey: (
    keyId: string,
    change: Partial<Pick<ApiKey, 'name' | 'limitPerMinute' | 'turnsPerMonth'>>,
  ) => Promise<ApiKey>;

  /** Revokes a key. Revoking a revoked key changes nothing. */
  revokeApiKey: (keyId: string) => Promise<ApiKey>;
};

const toApiKey = ({ _id, hash: _hash, turnsPerMonth = null, previous, ...stored }: StoredApiKey): ApiKey => ({
  keyId: _id,
  turnsPerMonth,
  ...stored,
  overlapUntil: previous && previous.until.getTime() > serverNow() ? previous.until : null,
});

/** `requireAssistant` throws 404 if there is none. */
export const createApiKeyStore = (
  connection: Connection,
  requireAssistant: (assistantId: string) => Promise<unknown>,
): ApiKeyStore => {
  const apiKeys = apiKeyModel(connection);

  const findByHash = cachedSettings(async (hash: string) => {
    const stored = await apiKeys.findOne({ $or: [{ hash }, { 'previous.hash': hash }], revokedAt: null }).lean();
    return stored && { key: toApiKey(stored), until: stored.hash === hash ? null : (stored.previous?.until ?? null) };
  });

  const foundBefore = createLru<true>({ most: KEYS_KNOWN });

  const getApiKey = async (keyId: string): Promise<ApiKey> => {
    return toApiKey(orNotFound(await apiKeys.findById(keyId).lean()));
  };

  return {
    model: apiKeys,

    findApiKey: async (apiKey) => {
      const hash = hashSecret(apiKey);
      // The checksum is checked only for a key that is not cached, because the check costs less than a query but more
      // than a cache hit.
      if (!findByHash.knows(hash) && !isWellFormedApiKey(apiKey)) return null;
      const found = await findByHash(hash);
      if (!found) return null;
      foundBefore.set(hash, true);
      const { key, until } = found;
      if (until !== null) return until.getTime() > serverNow() ? key : null;
      if ((key.lastUsedAt?.getTime() ?? 0) < serverNow() - LAST_USED_EVERY_MS) {
        key.lastUsedAt = serverDate();
        // The time is only shown to operators, so a lost write is harmless. It does not wait for the journal.
        const used = { lastUsedAt: key.lastUsedAt };
        apiKeys.updateOne({ _id: key.keyId }, used, { writeConcern: { w: 1 } }).catch(() => undefined);
      }
      return key;
    },

    hasFoundApiKey: (apiKey) => foundBefore.has(hashSecret(apiKey)),

    createApiKey: async ({ assistantId, name, limitPerMinute, turnsPerMonth = null }) => {
      await requireAssistant(assistantId);
      const apiKey = newApiKey();
      const stored: StoredApiKey = {
        _id: newId(),
        hash: hashSecret(apiKey),
        assistantId,
        name,
        lastFour: apiKey.slice(-4),
        limitPerMinute: limitPerMinute ?? DEFAULT_LIMIT_PER_MINUTE,
        turnsPerMonth,
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

    listApiKeys: async (assistantId) => {
      const options = { sort: { createdAt: -1 }, batchSize: LISTED_AT_ONCE } as const;
      const slices = createSlices();
      const keys: ApiKey[] = [];
      for await (const stored of collectionOf<StoredApiKey>(apiKeys).find({ assistantId }, options)) {
        keys.push(toApiKey(stored));
        if (slices.isOver()) await slices.next();
      }
      return keys;
    },

    countApiKeys: (assistantId) => apiKeys.countDocuments({ assistantId, revokedAt: null }).exec(),

    rotateApiKey: async (keyId, overlapHours = 0) => {
      const apiKey = newApiKey();
      const until = new Date(serverNow() + overlapHours * HOUR_MS);
      const stage = {
        $set: {
          hash: hashSecret(apiKey),
          lastFour: apiKey.slice(-4),
          lastUsedAt: null,
          previous: overlapHours > 0 ? { hash: '$hash', until } : '$$REMOVE',
        },
      };
      const stored = await apiKeys
        .findOneAndUpdate({ _id: keyId, revokedAt: null }, [stage], { ...AFTER, updatePipeline: true })
        .lean();
      return { key: toApiKey(orNotFound(stored)), apiKey };
    },

    updateApiKey: async (keyId, change) => {
      const stored = await apiKeys.findOneAndUpdate({ _id: keyId, revokedAt: null }, { $set: change }, AFTER).lean();
      return toApiKey(orNotFound(stored));
    },

    revokeApiKey: async (keyId) => {
      const revoked = { $set: { revokedAt: serverDate() }, $unset: { previous: 1 } };
      await apiKeys.updateOne({ _id: keyId, revokedAt: null }, revoked);
      return getApiKey(keyId);
    },
  };
};
