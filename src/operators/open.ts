import type { Connection } from 'mongoose';
import { buildIndexes } from '../mongo/mongo.ts';
import { createAudit } from './audit.ts';
import { sessionModel } from './session.ts';
import { createOperatorStore } from './store.ts';
import { createTokenStore } from './token.ts';

/**
 * Opens the stores for operators, tokens and the audit trail. The API, the admin command and the quickstart use these
 * stores; workers do not.
 */
export const openOperators = async (connection: Connection) => {
  const operators = createOperatorStore(connection);
  const tokens = createTokenStore(connection);
  const audit = createAudit(connection);
  await buildIndexes([...operators.models, ...tokens.models, ...audit.models, sessionModel(connection)]);
  return { operators, tokens, audit };
};
