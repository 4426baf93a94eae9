import type { Service } from '../service.ts';
import { createAudit } from './audit.ts';
import { sessionModel } from './session.ts';
import { createOperatorStore } from './store.ts';

/** Who may sign in, and what they did; for the API, the admin command and the quickstart. Workers know no operators. */
export const openOperators = async ({ mongo, buildIndexes }: Pick<Service, 'mongo' | 'buildIndexes'>) => {
  const operators = createOperatorStore(mongo);
  const audit = createAudit(mongo);
  await buildIndexes([...operators.models, ...audit.models, sessionModel(mongo)]);
  return { operators, audit };
};
