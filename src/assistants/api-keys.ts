import { createHash, randomBytes } from 'node:crypto';
import type { Connection } from 'mongoose';
import * as z from 'zod';
import { schemaOf } from '../platform/mongo/mongo.ts';

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
export const newApiKey = (): string => {
  const body = newSecret('');
  return `sk_${body}${checksumOf(body)}`;
};

const SHAPE = new RegExp(`^sk_(${SECRET_BODY})([0-9A-Za-z]{${CHECKSUM_LENGTH}})$`);

/** Detects mistyped and invented keys by their checksum, without a database query. */
export const isWellFormedApiKey = (apiKey: string): boolean => {
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
export type StoredApiKey = Omit<ApiKey, 'keyId' | 'turnsPerMonth' | 'overlapUntil'> &
  Partial<Pick<ApiKey, 'turnsPerMonth'>> & { _id: string; hash: string; previous?: PreviousKey };

const apiKeySchema = schemaOf<StoredApiKey>('apiKeys');
apiKeySchema.index({ hash: 1 }, { unique: true });
apiKeySchema.index({ 'previous.hash': 1 }, { sparse: true });
apiKeySchema.index({ assistantId: 1, createdAt: -1 });

export const apiKeyModel = (connection: Connection) => connection.model<StoredApiKey>('ApiKey', apiKeySchema);
