import type { Connection } from 'mongoose';
import { assistantModels } from '../assistants/assistant.ts';
import { invalid } from '../platform/errors.ts';
import type { Role } from './roles.ts';

type Wanted = { role: Role; assistantIds: string[] | null };

/**
 * Checks the list of assistants for an operator: removes duplicates and refuses unknown ids. The list must be null for
 * owners, which means all assistants.
 */
export const createAssistantIdsCheck = (connection: Connection) => {
  const { assistants } = assistantModels(connection);

  return async ({ role, assistantIds }: Wanted): Promise<string[] | null> => {
    if (assistantIds === null) return null;
    if (role === 'owner') throw invalid('assistantIds', 'not_for_owners', 'must be null: owners have every assistant');
    const once = [...new Set(assistantIds)];
    const known = await assistants.countDocuments({ _id: { $in: once } });
    if (known < once.length) throw invalid('assistantIds', 'unknown', 'contains an unknown assistant');
    return once;
  };
};
