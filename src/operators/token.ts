import { type Connection, Schema } from 'mongoose';
import { newSecret, SECRET_BODY } from '../assistants/api-keys.ts';
import type { Operator } from './operator.ts';

/** What a token may do: only read, or also change things. */
export const SCOPES = ['read', 'manage'] as const;
export type Scope = (typeof SCOPES)[number];

const PREFIX = 'op_';
const SHAPE = new RegExp(`^${PREFIX}${SECRET_BODY}$`);

/**
 * A new token: `op_` and 32 random bytes in base 62. The token is shown once; only its hash is stored
 * (docs/contract.md, Operator tokens).
 */
export const newOperatorToken = (): string => newSecret(PREFIX);
export const isWellFormedToken = (token: string): boolean => SHAPE.test(token);

/**
 * The operator token in an `Authorization` header, whether valid or not. Null for other values, such as the credentials
 * of a proxy.
 */
export const readToken = (authorization: string | undefined): string | null =>
  /^Bearer +(op_\S{0,100}) *$/i.exec(authorization ?? '')?.[1] ?? null;

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

export type StoredToken = Omit<OperatorToken, 'tokenId'> & { _id: string; hash: string };

const tokenSchema = new Schema<StoredToken>(
  {
    _id: { type: String, required: true },
    hash: { type: String, required: true },
    name: { type: String, required: true },
    lastFour: { type: String, required: true },
    scope: { type: String, required: true },
    assistantIds: { type: [String], default: null },
    createdBy: { type: String, default: null },
    createdAt: { type: Date, required: true },
    lastUsedAt: { type: Date, default: null },
    revokedAt: { type: Date, default: null },
  },
  { collection: 'operatorTokens', versionKey: false, strictQuery: 'throw' },
);
tokenSchema.index({ hash: 1 }, { unique: true });
tokenSchema.index({ createdAt: -1 });
tokenSchema.index({ createdBy: 1 });

export const tokenModel = (connection: Connection) => connection.model<StoredToken>('OperatorToken', tokenSchema);

export const toToken = ({ _id, hash: _hash, ...stored }: StoredToken): OperatorToken => ({ tokenId: _id, ...stored });

/** The signed-in operator of a request, or a program with a token. The audit trail shows a token by its name. */
export type Caller = Operator & { token: OperatorToken | null };

/**
 * A token in the form of an operator: an unlimited token acts as an owner, and a limited token acts as an agent with
 * its assistants.
 */
export const callerOfToken = (token: OperatorToken): Caller => ({
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
