import type { Connection } from 'mongoose';
import * as z from 'zod';
import { assistantModels } from '../assistants/assistant.ts';
import { schemaOf } from '../platform/mongo/mongo.ts';
import { invalid } from '../platform/process/errors.ts';

export const ROLES = ['owner', 'agent'] as const;
export type Role = (typeof ROLES)[number];

/**
 * Who may call an operation: anyone, signed-in operators, or owners. Agents may use the inbox and the playground
 * (docs/contract.md, Operators and sessions).
 */
const AUDIENCES = ['anyone', 'operators', 'owners'] as const;
export type Audience = (typeof AUDIENCES)[number];

type Wanted = { role: Role; assistantIds: string[] | null };

/**
 * True if the operator may use the assistant. Owners may use every assistant, and agents those in `assistantIds`, where
 * null means every assistant (docs/contract.md, Operators and sessions).
 */
export const hasAssistant = (wanted: Wanted, assistantId: string): boolean =>
  assistantIdsOf(wanted)?.includes(assistantId) ?? true;

/** The assistants that the operator may use. Null: every one. */
export const assistantIdsOf = ({ role, assistantIds }: Wanted): string[] | null =>
  role === 'owner' ? null : assistantIds;

export const mayUse = (role: Role, audience: Audience): boolean => audience !== 'owners' || role === 'owner';

/**
 * Checks the list of assistants for an operator: removes duplicates and refuses unknown ids. The list must be null for
 * owners, which means all assistants.
 */
export const createAssistantIdsCheck = (connection: Connection) => {
  const { assistants } = assistantModels(connection);

  return async ({ role, assistantIds }: Wanted): Promise<string[] | null> => {
    if (assistantIds === null) return null;
    if (role === 'owner') throw invalid('assistantIds', 'not_for_owners', 'must be null: owners have every assistant');
    const once = [...new Set(assistantIds)].toSorted(); // whoever has the same assistants shares one place
    const known = await assistants.countDocuments({ _id: { $in: once } });
    if (known < once.length) throw invalid('assistantIds', 'unknown', 'contains an unknown assistant');
    return once;
  };
};

/** An email address in its normal form. Letters become lower case, because phones capitalise the first letter. */
export const Email = z
  .string()
  .max(254)
  .transform((value) => value.trim().normalize('NFKC').toLowerCase())
  .pipe(z.email('must be an email address'))
  .meta({ override: { type: 'string', format: 'email', maxLength: 254 } });

const PASSWORD_MIN = 12;
export const PASSWORD_MAX = 200;

export const Password = z
  .string()
  .min(PASSWORD_MIN, `must have at least ${PASSWORD_MIN} characters`)
  .max(PASSWORD_MAX, `must have at most ${PASSWORD_MAX} characters`)
  .refine((value) => value.isWellFormed(), 'must be well-formed Unicode')
  .meta({ format: 'password' });

export const RoleName = z.enum(ROLES);

const ASSISTANTS_MAX = 500;

export const AssistantIds = z
  .array(z.uuid())
  .max(ASSISTANTS_MAX)
  .nullable()
  .meta({ description: 'The agent’s assistants. Null: all of them, as for owners.' });

export type Operator = {
  operatorId: string;
  email: string;
  role: Role;
  disabled: boolean;
  /** The assistants that an agent may use. Null means all assistants, as for owners. */
  assistantIds: string[] | null;
  /** False until an invited operator has used the link to set a password. */
  hasPassword: boolean;
  /** Sessions store this number. Incrementing it ends all of the operator's sessions. */
  generation: number;
  createdAt: Date;
  lastSignInAt: Date | null;
};

/**
 * A link to set a password. Only its hash is stored. An operator has at most one link; a new link replaces the old
 * link.
 */
export type StoredLink = { hash: string; until: Date };

export type StoredOperator = Omit<Operator, 'operatorId' | 'hasPassword' | 'assistantIds'> & {
  _id: string;
  /** Absent for operators that were created before this field existed. */
  assistantIds?: string[] | null;
  passwordHash: string | null;
  link: StoredLink | null;
  /** When the role, the assistants or `disabled` changed last. */
  accessChangedAt?: Date;
  /** True once all escalations that the operator can no longer take have a take-by time (src/inbox/assignees.ts). */
  released?: boolean;
  /** Incremented so that two concurrent removals of owners conflict (see `requireAnotherOwner`). */
  vouched?: number;
};

const operatorSchema = schemaOf<StoredOperator>('operators');
operatorSchema.index({ email: 1 }, { unique: true });
operatorSchema.index({ released: 1 });
operatorSchema.index(
  { 'link.hash': 1 },
  { unique: true, partialFilterExpression: { 'link.hash': { $exists: true } }, name: 'links' },
);

export const operatorModel = (connection: Connection) => connection.model<StoredOperator>('Operator', operatorSchema);

/** The sessions of browsers, which `connect-mongo` writes. */
export const SESSIONS = 'operatorSessions';
const sessionSchema = schemaOf<{ _id: string; expires?: Date | null; session: unknown }>(SESSIONS);
sessionSchema.index({ expires: 1 }, { expireAfterSeconds: 0 });

export const sessionModel = (connection: Connection) => connection.model('OperatorSession', sessionSchema);

export const toOperator = ({
  _id,
  passwordHash,
  link: _link,
  vouched: _vouched,
  accessChangedAt: _accessChangedAt,
  released: _released,
  assistantIds = null,
  ...stored
}: StoredOperator): Operator => ({
  operatorId: _id,
  ...stored,
  assistantIds,
  hasPassword: passwordHash !== null,
});
