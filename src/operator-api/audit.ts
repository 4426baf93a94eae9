import * as z from 'zod';
import type { Audit } from '../operators/audit.ts';
import { ACTORS, AUDIT_DAYS } from '../operators/audit.ts';
import { cursor } from '../http/cursor.ts';
import { wholeNumber } from '../process/validation.ts';
import { type Handled, handled, operation } from './operation.ts';
import { definedFields, nextCursor, timeCursor, time, uuid } from './wire.ts';

const LINES = 50;

const AuditLineView = z
  .object({
    auditId: uuid,
    at: time,
    actor: z.enum(ACTORS).meta({ description: 'An operator, an operator token, or the admin command.' }),
    operatorId: uuid.meta({ description: 'The id of the operator or token. Zeros for the admin command.' }),
    email: z.string().meta({ description: 'The email at that time, or the name of the token.' }),
    action: z.string(),
    target: z.string().nullable().meta({ description: 'The id of what was changed.' }),
    details: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()])),
    requestId: z.string(),
  })
  .meta({ id: 'AuditLine' });

export const auditOperations = {
  list: operation({
    method: 'get',
    path: '/audit',
    id: 'listAudit',
    tag: 'Operators',
    summary: `List the audit trail, newest first; kept for ${AUDIT_DAYS} days`,
    audience: 'owners',
    resource: null,
    query: z.object({
      operatorId: uuid.optional(),
      action: z.string().max(100).optional(),
      target: z.string().max(200).optional(),
      limit: wholeNumber(1, 200).optional(),
      cursor: cursor.optional(),
    }),
    answer: z.object({ lines: z.array(AuditLineView), nextCursor }),
  }),
};

export const auditRoutes = ({ audit }: { audit: Audit }): Handled[] => [
  handled(auditOperations.list, async ({ query: { cursor: from, limit = LINES, ...exact } }) => {
    const { lines, next } = await audit.list({
      ...definedFields(exact),
      limit,
      ...(from !== undefined && { after: timeCursor.decode(from) }),
    });
    return { lines, nextCursor: next && timeCursor.encode(next) };
  }),
];
