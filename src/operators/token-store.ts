import type { Connection } from 'mongoose';
import { hashSecret } from '../assistants/api-keys.ts';
import { serverDate, serverNow } from '../platform/clock.ts';
import { notFound } from '../platform/errors.ts';
import { newId } from '../platform/ids.ts';
import { createAssistantIdsCheck } from './assistant-ids.ts';
import { operatorModel } from './operator.ts';
import {
  isWellFormedToken,
  newOperatorToken,
  type OperatorToken,
  type StoredToken,
  tokenModel,
  toToken,
} from './token.ts';

const LAST_USED_EVERY_MS = 60_000;

export type NewToken = Pick<OperatorToken, 'name' | 'scope' | 'assistantIds' | 'createdBy'>;

/** Operator tokens. Every request loads its token, so a revoked token is refused from the next request on. */
export const createTokenStore = (connection: Connection) => {
  const tokens = tokenModel(connection);
  const operators = operatorModel(connection);
  const checkAssistantIds = createAssistantIdsCheck(connection);

  const isCreatorStillOwner = async (operatorId: string | null): Promise<boolean> =>
    operatorId === null || (await operators.exists({ _id: operatorId, role: 'owner', disabled: false })) !== null;

  const noteUse = ({ _id, lastUsedAt }: StoredToken): void => {
    if ((lastUsedAt?.getTime() ?? 0) > serverNow() - LAST_USED_EVERY_MS) return;
    // The time is only shown to operators, so a lost write is harmless.
    tokens.updateOne({ _id }, { lastUsedAt: serverDate() }).catch(() => undefined);
  };

  return {
    models: [tokens],

    /** Creates a token. Only this answer contains the full token. */
    createToken: async ({ assistantIds, ...given }: NewToken): Promise<{ token: OperatorToken; secret: string }> => {
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
      await tokens.create(stored);
      return { token: toToken(stored), secret };
    },

    /**
     * Finds an active token. Null for a malformed, unknown or revoked token, and for a token whose creator is no longer
     * an active owner.
     */
    findToken: async (secret: string): Promise<OperatorToken | null> => {
      if (!isWellFormedToken(secret)) return null;
      const stored = await tokens.findOne({ hash: hashSecret(secret), revokedAt: null }).lean();
      if (!stored || !(await isCreatorStillOwner(stored.createdBy))) return null;
      noteUse(stored);
      return toToken(stored);
    },

    listTokens: async (): Promise<OperatorToken[]> =>
      (await tokens.find().sort({ createdAt: -1 }).lean()).map((stored) => toToken(stored)),

    /** Revokes a token. Revoking a revoked token changes nothing. */
    revokeToken: async (tokenId: string): Promise<OperatorToken> => {
      await tokens.updateOne({ _id: tokenId, revokedAt: null }, { revokedAt: serverDate() });
      const stored = await tokens.findById(tokenId).lean();
      if (!stored) throw notFound();
      return toToken(stored);
    },
  };
};

export type TokenStore = ReturnType<typeof createTokenStore>;
