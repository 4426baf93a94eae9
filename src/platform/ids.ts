import { createHmac, randomBytes, randomUUID } from 'node:crypto';

/**
 * Prefixed ids (docs/design.md, The conversation document): a conversation's and its turns' uuids carry in their first 48
 * bits those of the conversation's key, so that each finds its document by a range on `_id`, without an index of its own.
 */
const PREFIX_HEX = 12;

/** The key of a session's conversation: 128 bits in hex, unique by construction and evenly spread. Inner, never shown. */
export const conversationKeyOf = (session: { sessionKey: string; sessionId: string; playground: boolean }): string =>
  createHmac('sha256', session.sessionKey)
    .update(`${session.playground ? 'playground' : 'live'}\0${session.sessionId}`)
    .digest('hex')
    .slice(0, 32);

/** A fresh uuid of v4 layout that begins with the key's first 48 bits. */
export const newPrefixedId = (conversationKey: string): string => {
  const random = randomUUID();
  return `${conversationKey.slice(0, 8)}-${conversationKey.slice(8, PREFIX_HEX)}${random.slice(13)}`;
};

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

export const isUuid = (value: string): boolean => UUID.test(value);

/** The range of conversation keys a prefixed id can belong to: a handful of documents at most, usually one. */
export const prefixRange = (prefixedId: string): { $gte: string; $lt: string } => {
  const prefix = prefixedId.slice(0, 8) + prefixedId.slice(9, 13);
  return { $gte: prefix, $lt: `${prefix}g` };
};

export const newId = (): string => randomUUID();

/** A short random token for a process, a take or a claim. */
export const newToken = (): string => randomBytes(12).toString('base64url');
