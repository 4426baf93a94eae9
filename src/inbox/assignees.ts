import { type Assistant, takeByOf } from '../assistants/assistant.ts';
import type { ConversationStore } from '../conversations/store.ts';
import type { TakeBy } from '../conversations/transitions.ts';
import { hasAssistant, type Operator } from '../operators/operator.ts';
import type { OperatorStore } from '../operators/store.ts';
import { serverNow } from '../platform/process/clock.ts';
import { inOrder, inTurnsOfHolders } from '../platform/process/slots.ts';

/**
 * The one rule of who has a conversation: its assignee, if `find` finds the operator. Nobody has it if the assignee was
 * disabled or lost the assistant. The lists, the rows and the take-by time follow this rule.
 */
export type Assignees = {
  find: (operatorId: string | undefined, assistantId: string) => Operator | null;
  of: (assistantId: string) => Operator[];
};

const mayHave = (operator: Operator, assistantId: string): boolean =>
  !operator.disabled && hasAssistant(operator, assistantId);

/** Reads the operators who may be assigned: enabled operators who may use the assistant. */
export type ReadAssignees = () => Promise<Assignees>;

export const createReadAssignees =
  (operators: Pick<OperatorStore, 'listOperators'>): ReadAssignees =>
  async () => {
    const all = await operators.listOperators();
    const byId = new Map(all.map((operator) => [operator.operatorId, operator]));
    return {
      find: (operatorId, assistantId) => {
        const operator = operatorId === undefined ? undefined : byId.get(operatorId);
        return operator && mayHave(operator, assistantId) ? operator : null;
      },
      of: (assistantId) => all.filter((operator) => mayHave(operator, assistantId)),
    };
  };

type RuleDependencies = {
  findAssistant: (assistantId: string) => Promise<Assistant | null>;
  readAssignees: ReadAssignees;
};

/** Who has an escalation, and until when somebody must take it. An escalation in the playground reaches nobody. */
export const createTakeBy = ({ findAssistant, readAssignees }: RuleDependencies): TakeBy => {
  const isTaken: TakeBy['isTaken'] = async ({ assigneeId, assistantId }) =>
    assigneeId !== undefined && (await readAssignees()).find(assigneeId, assistantId) !== null;
  return {
    isTaken,
    findTakeBy: async (conversation, at) => {
      if (conversation.channel === 'playground' || (await isTaken(conversation))) return null;
      const assistant = await findAssistant(conversation.assistantId);
      return assistant && takeByOf(assistant, at);
    },
  };
};

const OPERATORS_PER_SWEEP = 20;
const ESCALATIONS_PER_SWEEP = 200;
/** A sweep handles the escalations of one operator for this long, of a few operators at once. */
const RELEASED_FOR_MS = 1_000;
const OPERATORS_AT_ONCE = 2;
/** A write that still relied on the operator's old access arrives within this time. */
const SETTLED_MS = 10_000;

type ReleaseDependencies = {
  conversations: Pick<ConversationStore, 'findAssigned' | 'transitions'>;
  operators: Pick<OperatorStore, 'findUnreleased' | 'markReleased'>;
  listIdsWithTakeWithin: () => Promise<string[]>;
  releasedForMs?: number;
};

/**
 * Gives a take-by time to escalations whose assignee was disabled or lost the assistant. The write that changes the
 * operator also marks it for this sweep. The mark is kept for some time, so that writes that still relied on the old
 * access are found as well. A failure does not stop the others; the first one is thrown at the end.
 */
export const createReleaseSweep =
  ({ conversations, operators, listIdsWithTakeWithin, releasedForMs = RELEASED_FOR_MS }: ReleaseDependencies) =>
  async (): Promise<void> => {
    const heldBy = new Map<string, string[]>();
    const changed = await operators.findUnreleased(OPERATORS_PER_SWEEP);
    const all = changed.length > 0 ? await listIdsWithTakeWithin() : [];
    const reading = inOrder(changed, async ({ operator, changedAt }) => {
      const { operatorId } = operator;
      const assistantIds = all.filter((assistantId) => !mayHave(operator, assistantId));
      const held = await conversations.findAssigned({ operatorId, assistantIds }, ESCALATIONS_PER_SWEEP);
      heldBy.set(operatorId, held);
      const isSettled = changedAt === null || serverNow() - changedAt.getTime() > SETTLED_MS;
      if (isSettled && held.length === 0) await operators.markReleased(operatorId, changedAt);
    });
    await reading.catch(() => undefined); // thrown at the end
    const limits = { holdersAtOnce: OPERATORS_AT_ONCE, eachForMs: releasedForMs };
    await inTurnsOfHolders(heldBy, limits, async (conversationId) => {
      // A conversation that was erased, or that changes too fast, must not delay the others. The next sweep finds it
      // again.
      await conversations.transitions.startTakeBy({ conversationId }).catch(() => undefined);
    });
    await reading;
  };
