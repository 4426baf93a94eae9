import type { Operator } from '../operators/operator.ts';
import { hasAssistant } from '../operators/roles.ts';
import type { OperatorStore } from '../operators/store.ts';

/** Answers who may be assigned. An operator who was disabled, or lost the assistant, counts as not assigned. */
export type Assignees = {
  find: (operatorId: string | undefined, assistantId: string) => Operator | null;
  of: (assistantId: string) => Operator[];
};

/** Reads the operators who may be assigned: enabled operators who may use the assistant. */
export const createReadAssignees =
  (operators: Pick<OperatorStore, 'listOperators'>) => async (): Promise<Assignees> => {
    const enabled = (await operators.listOperators()).filter(({ disabled }) => !disabled);
    const byId = new Map(enabled.map((operator) => [operator.operatorId, operator]));
    return {
      find: (operatorId, assistantId) => {
        const operator = operatorId === undefined ? undefined : byId.get(operatorId);
        return operator && hasAssistant(operator, assistantId) ? operator : null;
      },
      of: (assistantId) => enabled.filter((operator) => hasAssistant(operator, assistantId)),
    };
  };

export type ReadAssignees = ReturnType<typeof createReadAssignees>;
