import { auditOperations } from './audit.ts';
import type { Operation } from './operation.ts';
import { operatorOperations } from './operators.ts';
import { sessionOperations } from './session.ts';

/** All there is to call, for those who document it. */
export const OPERATIONS: Operation[] = [sessionOperations, operatorOperations, auditOperations].flatMap((page) =>
  Object.values<Operation>(page),
);
