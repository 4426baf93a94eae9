import { type Connection, Schema } from 'mongoose';
import { newSecret, SECRET_BODY } from '../assistants/api-keys.ts';
import type { Operator } from './operator.ts';

/** What a token may do: only look, or change things too. */
export const SCOPES = ['read', 'manage'] as const;
export type Scope = (typeof SCOPES)[number];

const PREFIX = 'op_';
const SHAPE = new RegExp(`^${PREFIX}${SECRET_BODY}$`);

/** `op_` + 32 random bytes in base 62: shown once, kept only as its hash (docs/operating.md, operator tokens). */
export const newOperatorToken = (): string => newSecret(PREFIX);
export const isWellFormedToken = (token: string): boolean => SHAPE.test(token);

/** A Bearer value that is meant as an operator token, right or wrong; null for any other, such as a proxy's own. */
export const readToken = (authorization: string | undefined): string | null =>
  /^Bearer +(op_\S{0,100}) *$/i.exec(authorization ?? '')?.[1] ?? null;

export type OperatorToken = {
  tokenId: string;
  name: string;
  lastFour: string;
  scope: Scope;
  /** What it is limited to; null = every assistant, and what belongs to none. */
  assistantIds: string[] | null;
  /** The owner who made it, and with whom it ends; null = the admin command on the service's own machine. */
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

export const tokenModel = (connection: Connection) => connection.model<StoredToken>('OperatorToken', tokenSchema);

export const toToken = ({ _id, hash: _hash, ...stored }: StoredToken): OperatorToken => ({ tokenId: _id, ...stored });

/** Who acts for a request: somebody signed in, or a program with a token, which stands in the trail under its name. */
export type Caller = Operator & { token: OperatorToken | null };

/** An unlimited token has every assistant, as owners have; a limited one those given to it, as agents have. */
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
