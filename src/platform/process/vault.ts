import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

interface VaultKey {
  id: string;
  key: Buffer;
}

interface SealedText {
  /** The key that the text names. */
  id: string;
  bytes: Buffer;
}

export interface Vault {
  /** `context` identifies the owner of the secret. A sealed text can be opened only with the context that sealed it. */
  seal: (plain: string, context: string) => string;
  open: (sealed: string, context: string) => string;
  /** Seals the same secret with the first key. Returns the same text if this key has sealed it. */
  reseal: (sealed: string, context: string) => string;
}

/** Where a document keeps a secret: the path of its field, and what `open` needs. */
export interface SecretPlace {
  path: string;
  sealed: string;
  context: string;
}

/**
 * `older`: how many secrets another key than the first has sealed. `unreadable`: the owners of secrets that no key
 * opens.
 */
export interface SecretsFound {
  secrets: number;
  older: number;
  resealed: number;
  unreadable: string[];
}

/** Seals the secrets of one record again, unless it is a dry run, and counts them. */
export interface Resealing {
  found: SecretsFound;
  /** The new texts by their paths. Texts that do not change are left out. */
  reseal: (places: SecretPlace[], whose: string) => Record<string, string>;
}

export class VaultError extends Error {
  override name = 'VaultError';
}

const VERSION = 'v1';
const KEY_ID = /^[\w-]{1,32}$/;
const IV_BYTES = 12;
const TAG_BYTES = 16;

const parse = (sealed: string): SealedText => {
  const [version, id = '', text = '', ...rest] = sealed.split('.');
  if (version !== VERSION || rest.length > 0) throw new VaultError('the sealed text has an unknown format');
  return { id, bytes: Buffer.from(text, 'base64url') };
};

const decrypt = ({ id, bytes }: SealedText, key: Buffer, context: string): string => {
  const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, IV_BYTES), { authTagLength: TAG_BYTES });
  decipher.setAAD(Buffer.from(`${VERSION}.${id}.${context}`));
  decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
  return decipher.update(bytes.subarray(IV_BYTES, -TAG_BYTES), undefined, 'utf8') + decipher.final('utf8');
};

/**
 * Encrypts secrets for storage (AES-256-GCM). The first key seals. Every key opens, so that keys can be rotated. The
 * key that a text names is tried first, and then the others, because a key that is listed without an id is named by its
 * place.
 */
export const createVault = ({ keys }: { keys: readonly VaultKey[] }): Vault => {
  const [current] = keys;
  if (!current) throw new VaultError('a vault needs at least one key');
  const ids = new Set<string>();
  for (const { id, key } of keys) {
    if (!KEY_ID.test(id)) throw new VaultError(`key id "${id}" must be 1 to 32 letters, digits, "_" or "-"`);
    if (key.length !== 32) throw new VaultError(`key "${id}" has ${key.length} bytes; AES-256 needs 32`);
    if (ids.has(id)) throw new VaultError(`key id "${id}" is used twice`);
    ids.add(id);
  }

  const seal = (plain: string, context: string): string => {
    const iv = randomBytes(IV_BYTES);
    const cipher = createCipheriv('aes-256-gcm', current.key, iv);
    cipher.setAAD(Buffer.from(`${VERSION}.${current.id}.${context}`));
    const sealed = Buffer.concat([iv, cipher.update(plain, 'utf8'), cipher.final(), cipher.getAuthTag()]);
    return `${VERSION}.${current.id}.${sealed.toString('base64url')}`;
  };

  const unseal = (sealed: string, context: string): { plain: string; isCurrent: boolean } => {
    const parsed = parse(sealed);
    const { id: named, bytes } = parsed;
    const isNamed = ({ id }: VaultKey): boolean => id === named;
    let cause: unknown;
    if (bytes.length >= IV_BYTES + TAG_BYTES) {
      for (const one of [...keys.filter(isNamed), ...keys.filter((other) => !isNamed(other))]) {
        try {
          return { plain: decrypt(parsed, one.key, context), isCurrent: one === current && isNamed(one) };
        } catch (failure) {
          cause = failure;
        }
      }
    }
    if (!ids.has(named)) throw new VaultError(`the sealed text needs key "${named}", which is not configured`);
    if (cause === undefined) throw new VaultError('the sealed text is too short');
    throw new VaultError('the sealed text was altered, belongs elsewhere, or its key has changed', { cause });
  };

  return {
    seal,
    open: (sealed, context) => unseal(sealed, context).plain,
    reseal: (sealed, context) => {
      const { plain, isCurrent } = unseal(sealed, context);
      return isCurrent ? sealed : seal(plain, context);
    },
  };
};

export const createResealing = ({ reseal }: Vault, { dryRun }: { dryRun: boolean }): Resealing => {
  const found: SecretsFound = { secrets: 0, older: 0, resealed: 0, unreadable: [] };
  return {
    found,
    reseal: (places, whose) => {
      const fields: Record<string, string> = {};
      for (const { path, sealed, context } of places) {
        found.secrets += 1;
        try {
          const text = reseal(sealed, context);
          if (text === sealed) continue;
          found.older += 1;
          if (dryRun) continue;
          found.resealed += 1;
          fields[path] = text;
        } catch (cause) {
          if (!(cause instanceof VaultError)) throw cause;
          if (!found.unreadable.includes(whose)) found.unreadable.push(whose);
        }
      }
      return fields;
    },
  };
};
