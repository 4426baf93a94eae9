import { useMutation, useQueryClient } from '@tanstack/react-query';
import { isProblem } from '../../../problem.ts';
import { tellProblem } from '../../../query.ts';
import type { InboxRow } from '../../../types.ts';
import { putRows } from '../list/change-rows.ts';
import { findRow } from '../list/rows.ts';
import { type ConversationFacts, refreshThread, type Thread, threadKey } from '../thread/thread.ts';

/** What an action changes, in the row and in the open conversation. */
type ChangedFacts = Partial<
  Pick<
    ConversationFacts & InboxRow,
    | 'status'
    | 'tags'
    | 'assigneeId'
    | 'snoozedUntil'
    | 'waitingSince'
    | 'takeBy'
    | 'remindedAt'
    | 'escalatedAt'
    | 'escalationReason'
    | 'resolvedAt'
    | 'resolvedBy'
  >
>;

export type Act = {
  run: () => Promise<unknown>;
  /** What the page shows at once, before the API has answered. */
  facts: (now: ConversationFacts) => ChangedFacts;
};

const only = <Whole extends object>(whole: Whole, names: readonly string[]): Partial<Whole> =>
  Object.fromEntries(Object.entries(whole).filter(([name]) => names.includes(name))) as Partial<Whole>;

/**
 * Changes a conversation. The change is visible at once. If the API refuses it, the former state is shown again with
 * the reason. Actions on one conversation run one after the other.
 */
export const useAct = (conversationId: string) => {
  const client = useQueryClient();
  const key = threadKey(conversationId);
  const show = (facts: ChangedFacts, row: InboxRow | undefined): void => {
    client.setQueryData<Thread>(key, (now) => now && { ...now, facts: { ...now.facts, ...facts } });
    if (row) putRows(client, [{ ...row, ...only(facts, Object.keys(row)) }]);
  };
  return useMutation({
    scope: { id: `act-${conversationId}` },
    networkMode: 'always',
    mutationFn: ({ run }: Act) => run(),
    onMutate: async ({ facts }) => {
      await client.cancelQueries({ queryKey: key });
      const before = client.getQueryData<Thread>(key);
      const row = findRow(client, conversationId);
      if (!before) return undefined;
      const change = facts(before.facts);
      show(change, row);
      return { facts: only(before.facts, Object.keys(change)), row };
    },
    onError: (problem, _act, before) => {
      if (before) show(before.facts, findRow(client, conversationId) ?? before.row);
      if (!isProblem(problem, 401)) tellProblem(problem);
    },
    onSettled: () => refreshThread(client, conversationId),
  });
};
