import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

interface VaultKey {
  id: string;
  key: Buffer;
}

export interface Vault {
  /** `context` identifies the owner of the secret. A sealed text can be opened only with the context that sealed it. */
  seal: (plain: string, context: string) => string;
  open: (sealed: string, context: string) => string;
}

export class VaultError extends Error {
  override name = 'VaultError';
}

const VERSION = 'v1';
const KEY_ID = /^[\w-]{1,32}$/;
const IV_BYTES = 12;
const TAG_BYTES = 16;

/** Encrypts secrets for storage (AES-256-GCM). The first key seals. Every key opens, so that keys can be rotated. */
export const createVault = ({ keys }: { keys: readonly VaultKey[] }): Vault => {
  const [current] = keys;
  if (!current) throw new VaultError('a vault needs at least one key');
  const byId = new Map<string, Buffer>();
  for (const { id, key } of keys) {
    if (!KEY_ID.test(id)) throw new VaultError(`key id "${id}" must be 1 to 32 letters, digits, "_" or "-"`);
    if (key.length !== 32) throw new VaultError(`key "${id}" has ${key.length} bytes; AES-256 needs 32`);
    if (byId.has(id)) throw new VaultError(`key id "${id}" is used twice`);
    byId.set(id, key);
  }

  const seal = (plain: string, context: string): string => {
    const iv = randomBytes(IV_BYTES);
    const cipher = createCipheriv('aes-256-gcm', current.key, iv);
    cipher.setAAD(Buffer.from(`${VERSION}.${current.id}.${context}`));
    const sealed = Buffer.concat([iv, cipher.update(plain, 'utf8'), cipher.final(), cipher.getAuthTag()]);
    return `${VERSION}.${current.id}.${sealed.toString('base64url')}`;
  };

  const open = (sealed: string, context: string): string => {
    const [version, id = '', text = '', ...rest] = sealed.split('.');
    if (version !== VERSION || rest.length > 0) throw new VaultError('the sealed text has an unknown format');
    const key = byId.get(id);
    if (!key) throw new VaultError(`the sealed text needs key "${id}", which is not configured`);
    const bytes = Buffer.from(text, 'base64url');
    if (bytes.length < IV_BYTES + TAG_BYTES) throw new VaultError('the sealed text is too short');
    const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, IV_BYTES), { authTagLength: TAG_BYTES });
    decipher.setAAD(Buffer.from(`${VERSION}.${id}.${context}`));
    decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
    try {
      return decipher.update(bytes.subarray(IV_BYTES, -TAG_BYTES), undefined, 'utf8') + decipher.final('utf8');
    } catch (cause) {
      throw new VaultError('the sealed text was altered, belongs elsewhere, or its key has changed', { cause });
    }
  };

  return { seal, open };
};
