import { at } from '../../api.ts';
import { useRead } from '../../query.ts';
import type { Agents } from '../../types.ts';

/** The operators to whom conversations of an assistant may be assigned. */
export const useAgents = (assistantId: string, enabled = true) => {
  const read = useRead<Agents>(at`/assistants/${assistantId}/agents`, { enabled, fresh: 300_000 });
  return read.data?.agents ?? [];
};

export const useAgent = (assistantId: string, operatorId: string | null) =>
  useAgents(assistantId, operatorId !== null).find((one) => one.operatorId === operatorId) ?? null;
