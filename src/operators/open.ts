import type { Connection } from 'mongoose';
import { buildIndexes } from '../mongo/mongo.ts';
import { type Audit, createAudit } from './audit.ts';
import { sessionModel } from './session.ts';
import { createOperatorStore, type OperatorStore } from './store.ts';
import { createTokenStore, type TokenStore } from './token.ts';

/** Who may use the operator API, and what they did. */
export type OperatorStores = { operators: OperatorStore; tokens: TokenStore; audit: Audit };

/**
 * Opens the stores for operators, tokens and the audit trail. The API, the admin command and the quickstart use these
 * stores; workers do not.
 */
export const openOperators = async (connection: Connection): Promise<OperatorStores> => {
  const operators = createOperatorStore(connection);
  const tokens = createTokenStore(connection);
  const audit = createAudit(connection);
  await buildIndexes([...operators.models, ...tokens.models, ...audit.models, sessionModel(connection)]);
  return { operators, tokens, audit };
};
