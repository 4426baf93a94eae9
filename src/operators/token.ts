import type { Connection } from 'mongoose';
import { hashSecret, newSecret, SECRET_BODY } from '../assistants/api-keys.ts';
import { serverDate, serverNow } from '../platform/process/clock.ts';
import { bearerIn } from '../platform/process/credentials.ts';
import { invalid, orNotFound } from '../platform/process/errors.ts';
import { insertAtMost } from '../platform/mongo/batches.ts';
import { newId } from '../platform/process/ids.ts';
import { createLru } from '../platform/process/lru.ts';
import { createAssistantIdsCheck, type Operator, operatorModel } from './operator.ts';
import { collectionOf, type Indexed, schemaOf } from '../platform/mongo/mongo.ts';

/** What a token may do: only read, or also change things. */
export const SCOPES = ['read', 'manage'] as const;
export type Scope = (typeof SCOPES)[number];

const PREFIX = 'op_';
const SHAPE = new RegExp(`^${PREFIX}${SECRET_BODY}$`);

/**
 * A new token: `op_` and 32 random bytes in base 62. The token is shown once; only its hash is stored
 * (docs/contract.md, Operator tokens).
 */
const newOperatorToken = (): string => newSecret(PREFIX);
const isWellFormedToken = (token: string): boolean => SHAPE.test(token);

/**
 * The operator token in an `Authorization` header, whether valid or not. Null for other values, such as the credentials
 * of a proxy.
 */
export const readToken = (authorization: string | undefined): string | null =>
  /^op_\S{0,100}$/i.exec(bearerIn(authorization) ?? '')?.[0] ?? null;

export type OperatorToken = {
  tokenId: string;
  name: string;
  lastFour: string;
  scope: Scope;
  /**
   * The assistants that the token is limited to. Null means every assistant, and also operations that concern no
   * assistant.
   */
  assistantIds: string[] | null;
  /**
   * The owner who created the token. The token stops working when that person is no longer an owner. Null if the admin
   * command on the server created the token.
   */
  createdBy: string | null;
  createdAt: Date;
  lastUsedAt: Date | null;
  revokedAt: Date | null;
};

type StoredToken = Omit<OperatorToken, 'tokenId'> & { _id: string; hash: string };

const tokenSchema = schemaOf<StoredToken>('operatorTokens');
tokenSchema.index({ hash: 1 }, { unique: true });
tokenSchema.index({ createdAt: -1 });
tokenSchema.index({ createdBy: 1 });

export const tokenModel = (connection: Connection) => connection.model<StoredToken>('OperatorToken', tokenSchema);

const toToken = ({ _id, hash: _hash, ...stored }: StoredToken): OperatorToken => ({ tokenId: _id, ...stored });

/** The signed-in operator of a request, or a program with a token. The audit trail shows a token by its name. */
export type OperatorCaller = Operator & { token: OperatorToken | null };

/**
 * A token in the form of an operator: an unlimited token acts as an owner, and a limited token acts as an agent with
 * its assistants.
 */
export const callerOfToken = (token: OperatorToken): OperatorCaller => ({
  operatorId: token.tokenId,
  email: token.name,
  role: token.assistantIds === null ? 'owner' : 'agent',
  assistantIds: token.assistantIds,
  disabled: false,
  hasPassword: false,
  generation: 1,
  createdAt: token.createdAt,
  lastSignInAt: null,
  token,
});

/** How many tokens there may be. Revoked tokens count, because they are still listed. */
const TOKENS_MAX = 1_000;
const TOKENS_KNOWN = 10_000;
const LAST_USED_EVERY_MS = 60_000;

type NewToken = Pick<OperatorToken, 'name' | 'scope' | 'assistantIds' | 'createdBy'>;

/** Operator tokens. Every request loads its token, so a revoked token is refused from the next request on. */
export type TokenStore = {
  models: Indexed[];

  /** Creates a token. Only this answer contains the full token. */
  createToken: (token: NewToken) => Promise<{ token: OperatorToken; secret: string }>;

  /**
   * Finds an active token. Null for a malformed, unknown or revoked token, and for a token whose creator is no longer
   * an active owner.
   */
  findToken: (secret: string) => Promise<OperatorToken | null>;

  /** True if this process has found the token before. It may have been revoked since. */
  hasFoundToken: (secret: string) => boolean;

  listTokens: () => Promise<OperatorToken[]>;

  /** Revokes a token. Revoking a revoked token changes nothing. */
  revokeToken: (tokenId: string) => Promise<OperatorToken>;
};

export const createTokenStore = (connection: Connection): TokenStore => {
  const tokens = tokenModel(connection);
  const operators = operatorModel(connection);
  const checkAssistantIds = createAssistantIdsCheck(connection);
  const foundBefore = createLru<true>({ most: TOKENS_KNOWN });

  const isCreatorStillOwner = async (operatorId: string | null): Promise<boolean> =>
    operatorId === null || (await operators.exists({ _id: operatorId, role: 'owner', disabled: false })) !== null;

  const noteUse = ({ _id, lastUsedAt }: StoredToken): void => {
    if ((lastUsedAt?.getTime() ?? 0) > serverNow() - LAST_USED_EVERY_MS) return;
    // The time is only shown to operators, so a lost write is harmless.
    tokens.updateOne({ _id }, { lastUsedAt: serverDate() }).catch(() => undefined);
  };

  return {
    models: [tokens],

    createToken: async ({ assistantIds, ...given }) => {
      const secret = newOperatorToken();
      const stored: StoredToken = {
        _id: newId(),
        hash: hashSecret(secret),
        ...given,
        assistantIds: await checkAssistantIds({ role: 'agent', assistantIds }),
        lastFour: secret.slice(-4),
        createdAt: serverDate(),
        lastUsedAt: null,
        revokedAt: null,
      };
      const tooMany = () =>
        invalid('name', 'too_many', `there are at most ${TOKENS_MAX} tokens, revoked ones included`);
      const filter = { _id: { $gt: '' } }; // all of them, counted in an index
      await insertAtMost({ collection: collectionOf(tokens), filter, max: TOKENS_MAX, tooMany }, stored);
      return { token: toToken(stored), secret };
    },

    findToken: async (secret) => {
      if (!isWellFormedToken(secret)) return null;
      const hash = hashSecret(secret);
      const stored = await tokens.findOne({ hash, revokedAt: null }).lean();
      if (!stored || !(await isCreatorStillOwner(stored.createdBy))) return null;
      foundBefore.set(hash, true);
      noteUse(stored);
      return toToken(stored);
    },

    hasFoundToken: (secret) => foundBefore.has(hashSecret(secret)),

    listTokens: async () => (await tokens.find().sort({ createdAt: -1 }).lean()).map((stored) => toToken(stored)),

    revokeToken: async (tokenId) => {
      await tokens.updateOne({ _id: tokenId, revokedAt: null }, { revokedAt: serverDate() });
      return toToken(orNotFound(await tokens.findById(tokenId).lean()));
    },
  };
};
