import type { Connection, Model } from 'mongoose';
import { createAudit } from './audit.ts';
import { sessionModel } from './session.ts';
import { createOperatorStore } from './store.ts';

/** Who may sign in, and what they did; for the API, the admin command and the quickstart. Workers know no operators. */
export const openOperators = async (connection: Connection) => {
  const operators = createOperatorStore(connection);
  const audit = createAudit(connection);
  const models = [...operators.models, ...audit.models, sessionModel(connection)] as unknown as Model<never>[];
  await Promise.all(models.map((model) => model.createIndexes()));
  return { operators, audit };
};
