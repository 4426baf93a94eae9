import { InvalidArgumentError } from 'commander';
import { AssistantIds } from '../../src/operators/operator.ts';
import { commaList } from './arguments.ts';

export type AssistantList = 'all' | string[];

/** Returns `all` instead of null, because Commander treats null from a parser as a missing value. */
export const assistantList = (value: string): AssistantList => {
  if (value.trim() === 'all') return 'all';
  const ids = AssistantIds.safeParse(commaList(value));
  if (!ids.success) throw new InvalidArgumentError('It must be assistant ids, separated by commas, or all.');
  return ids.data ?? 'all';
};

export const idsIn = (list: AssistantList): string[] | null => (list === 'all' ? null : list);

export const ASSISTANTS = [
  '--assistants <ids|all>',
  'the assistants of an agent, separated by commas; "" is none',
] as const;
