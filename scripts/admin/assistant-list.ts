import { InvalidArgumentError } from 'commander';
import { AssistantIds } from '../../src/operators/operator.ts';
import { commaList } from './arguments.ts';

export type AssistantList = 'all' | string[];

/** Not null for all of them: Commander takes a parser's null for no value. */
export const assistantList = (value: string): AssistantList => {
  if (value.trim() === 'all') return 'all';
  const ids = AssistantIds.safeParse(commaList(value));
  if (!ids.success)
    throw new InvalidArgumentError('It must be the ids of assistants, with commas between them, or all.');
  return ids.data ?? 'all';
};

export const idsIn = (list: AssistantList): string[] | null => (list === 'all' ? null : list);

export const ASSISTANTS = [
  '--assistants <ids|all>',
  'what an agent is limited to: ids with commas between; "" is none',
] as const;
