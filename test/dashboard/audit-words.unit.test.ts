import { expect, test } from 'vitest';
import { actionWords } from '../../dashboard/src/pages/audit/actions.ts';
import { OPERATIONS } from '../../src/api/operator-routes.ts';

test('each action that the audit records is described', () => {
  const actions = OPERATIONS.flatMap(({ audit }) => (typeof audit === 'string' ? [audit] : []));
  expect(actions.length).toBeGreaterThan(50);
  expect(actions.filter((action) => actionWords(action) === action)).toEqual([]);
});
