import { type Connection, Schema } from 'mongoose';
import * as z from 'zod';
import { ROLES, type Role } from './roles.ts';

/** An email address in its normal form. Letters become lower case, because phones capitalise the first letter. */
export const Email = z
  .string()
  .max(254)
  .transform((value) => value.trim().normalize('NFKC').toLowerCase())
  .pipe(z.email('must be an email address'))
  .meta({ override: { type: 'string', format: 'email', maxLength: 254 } });

export const PASSWORD_MIN = 12;
export const PASSWORD_MAX = 200;

export const Password = z
  .string()
  .min(PASSWORD_MIN, `must have at least ${PASSWORD_MIN} characters`)
  .max(PASSWORD_MAX, `must have at most ${PASSWORD_MAX} characters`)
  .refine((value) => value.isWellFormed(), 'must be well-formed Unicode')
  .meta({ format: 'password' });

export const RoleName = z.enum(ROLES);

export const ASSISTANTS_MAX = 500;

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

const operatorSchema = new Schema<StoredOperator>(
  {
    _id: { type: String, required: true },
    email: { type: String, required: true },
    passwordHash: { type: String, default: null },
    role: { type: String, required: true },
    disabled: { type: Boolean, required: true },
    assistantIds: { type: [String], default: undefined },
    generation: { type: Number, required: true },
    link: { type: Schema.Types.Mixed, default: null },
    createdAt: { type: Date, required: true },
    lastSignInAt: { type: Date, default: null },
    vouched: { type: Number },
    accessChangedAt: { type: Date },
    released: { type: Boolean },
  },
  { collection: 'operators', versionKey: false, strictQuery: 'throw' },
);
operatorSchema.index({ email: 1 }, { unique: true });
operatorSchema.index({ released: 1 });
operatorSchema.index(
  { 'link.hash': 1 },
  { unique: true, partialFilterExpression: { 'link.hash': { $exists: true } }, name: 'links' },
);

export const operatorModel = (connection: Connection) => connection.model<StoredOperator>('Operator', operatorSchema);

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
