import { createHmac, randomFillSync, randomUUID } from 'node:crypto';

/**
 * The length of the prefix in hex digits. The uuids of a conversation and its turns start with the first 48 bits of the
 * conversation key. So the document is found by a range on `_id`, without another index (docs/design.md, The
 * conversation document).
 */
const PREFIX_HEX = 12;

/** The key of a session's conversation: 128 bits in hex, unique and evenly distributed. Callers never see the key. */
export const conversationKeyOf = (session: { sessionKey: string; sessionId: string; playground: boolean }): string =>
  createHmac('sha256', session.sessionKey)
    .update(`${session.playground ? 'playground' : 'live'}\0${session.sessionId}`)
    .digest('hex')
    .slice(0, 32);

/** A new uuid in v4 layout that begins with the first 48 bits of the conversation key. */
export const newPrefixedId = (conversationKey: string): string => {
  const random = randomUUID();
  return `${conversationKey.slice(0, 8)}-${conversationKey.slice(8, PREFIX_HEX)}${random.slice(13)}`;
};

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** An id in v4 layout. A text from outside becomes one only through `isUuid`. */
export type Uuid = string & { readonly uuid: unique symbol };

export const isUuid = (value: string): value is Uuid => UUID.test(value);

/**
 * The range of conversation keys that match a prefixed id. The range usually contains one document, at most a few. It
 * takes only a whole id, because the range of a shorter text would contain a large part of all conversations.
 */
export const prefixRange = (prefixedId: Uuid): { $gte: string; $lt: string } => {
  const prefix = prefixedId.slice(0, 8) + prefixedId.slice(9, 13);
  return { $gte: prefix, $lt: `${prefix}g` };
};

export const newId = (): string => randomUUID();

const TOKEN_BYTES = 12;
const pool = Buffer.alloc(TOKEN_BYTES * 256);
let used = pool.length;

/** A short random token for a process, a lease or a claim. */
export const newToken = (): string => {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  used += TOKEN_BYTES;
  return pool.toString('base64url', used - TOKEN_BYTES, used);
};
