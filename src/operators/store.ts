import { randomBytes } from 'node:crypto';
import type * as argon2 from '@node-rs/argon2';
import type { ClientSession, Connection } from 'mongoose';
import { hashSecret } from '../assistants/api-keys.ts';
import { inSlot } from '../platform/http/request-slots.ts';
import { isDuplicateKey } from '../platform/mongo/failures.ts';
import { buildIndexes, collectionOf, type Indexed } from '../platform/mongo/mongo.ts';
import { DAY_MS, serverDate, serverNow } from '../platform/process/clock.ts';
import { invalid, notFound, orNotFound } from '../platform/process/errors.ts';
import { newId } from '../platform/process/ids.ts';
import { createSlots, oneEach, restAsLong, withRests } from '../platform/process/slots.ts';
import { type Audit, createAudit } from './audit.ts';
import {
  createAssistantIdsCheck,
  type Operator,
  operatorModel,
  type Role,
  sessionModel,
  type StoredLink,
  type StoredOperator,
  toOperator,
} from './operator.ts';
import { createTokenStore, tokenModel, type TokenStore } from './token.ts';

/**
 * The cost of argon2id: 19 MiB, 2 passes and 1 lane, as OWASP recommends. Hashing takes about 50 ms on a thread of the
 * pool.
 */
const COST = { memoryCost: 19_456, timeCost: 2, parallelism: 1 } as const;

/**
 * How many passwords are hashed at once, one of each caller. Each place then rests for as long, so all together take one
 * core at most. Files and compressed bodies use the same threads, of which there are four.
 */
const HASHED_AT_ONCE = 2;
const hashing = withRests(createSlots(oneEach(HASHED_AT_ONCE)), restAsLong);

/**
 * Callers take turns: an operator, or the networks of one customer. Throws 503 if too many wait. The library is loaded by
 * the first, because workers hash nothing. It takes 3 MB.
 */
const inHashing = <Value>(caller: string, work: (library: typeof argon2) => Promise<Value>): Promise<Value> =>
  inSlot(hashing, caller, () => import('@node-rs/argon2').then(work));

const hashPassword = (password: string, caller: string): Promise<string> =>
  inHashing(caller, ({ hash }) => hash(password.normalize('NFKC'), COST));

/** Generates a password from 120 random bits. The password is shown once. */
export const newPassword = (): string => randomBytes(15).toString('base64url');

/**
 * A hash that no password has. Comparing with it costs as much as comparing with a stored one. It is made without
 * hashing.
 */
const noPasswordsHash = (): string => {
  const part = (bytes: number): string => randomBytes(bytes).toString('base64').replaceAll('=', '');
  return `$argon2id$v=19$m=${COST.memoryCost},t=${COST.timeCost},p=${COST.parallelism}$${part(16)}$${part(32)}`;
};

/**
 * Compares a password with a stored hash. Without a stored hash, the password is compared with a hash that no password
 * has, so that the response time does not show whether the account exists.
 */
const isPassword = async (stored: string | null, password: string, caller: string): Promise<boolean> => {
  const matches = await inHashing(caller, ({ verify }) =>
    verify(stored ?? noPasswordsHash(), password.normalize('NFKC')),
  );
  return matches && stored !== null;
};

export const LINK_DAYS = 7;
const AFTER = { returnDocument: 'after' } as const;

type NewOperator = { email: string; role: Role; assistantIds?: string[] | null };
type OperatorChange = { [Name in 'role' | 'disabled' | 'assistantIds']?: Operator[Name] | undefined };

export type Link = { operator: Operator; token: string; expiresAt: Date };

const newLink = (): { token: string; link: StoredLink } => {
  const token = randomBytes(32).toString('base64url');
  return { token, link: { hash: hashSecret(token), until: new Date(serverNow() + LINK_DAYS * DAY_MS) } };
};

/**
 * The accounts of operators. Disabling an operator or setting a password increments `generation`, which ends the
 * operator's sessions.
 */
export type OperatorStore = {
  models: Indexed[];
  createOperator: (operator: NewOperator & { password: string }) => Promise<Operator>;
  findOperator: (operatorId: string) => Promise<Operator | null>;
  getOperator: (operatorId: string) => Promise<Operator>;
  findByEmail: (email: string) => Promise<Operator | null>;

  /** The account fields that a device token depends on. */
  findAccount: (email: string) => Promise<Pick<StoredOperator, '_id' | 'passwordHash'> | null>;

  findFirstOwner: () => Promise<Operator | null>;
  listOperators: () => Promise<Operator[]>;

  /**
   * Checks an email and a password. Returns null for a wrong password, an unknown email, an unused invitation and a
   * disabled operator. All these cases take the same time. `block`: the networks of the caller (`blockOf`).
   */
  checkSignIn: (email: string, password: string, block: string) => Promise<Operator | null>;

  /**
   * Creates an operator without a password, and a link to set a password. Only this answer contains the link's token.
   */
  invite: (operator: NewOperator) => Promise<Link>;

  /**
   * Makes a new link for a forgotten password or an expired invitation. The old password works until the link is
   * used.
   */
  makeLink: (operatorId: string) => Promise<Link>;

  /** The operator of a link, or null if the link is unknown or has expired. */
  findByLink: (token: string) => Promise<Operator | null>;

  /**
   * Sets a password by a link, which works once: if two requests use the link concurrently, one sets its password and
   * the other gets null.
   */
  useLink: (token: string, password: string, block: string) => Promise<Operator | null>;

  /** Changes the password. Returns null if the current password is wrong. An unused link becomes invalid too. */
  changePassword: (operatorId: string, current: string, next: string) => Promise<Operator | null>;

  /**
   * Changes the role, the assistants and the disabled state in one transaction. An agent who becomes an owner may use
   * every assistant.
   */
  updateOperator: (operatorId: string, change: OperatorChange) => Promise<Operator>;

  /** Operators whose access has changed. Escalations that are assigned to them may count as assigned to nobody. */
  findUnreleased: (limit: number) => Promise<{ operator: Operator; changedAt: Date | null }[]>;

  /** Does nothing if the access has changed again meanwhile. */
  markReleased: (operatorId: string, changedAt: Date | null) => Promise<void>;

  endSessions: (operatorId: string) => Promise<Operator>;
};

export const createOperatorStore = (connection: Connection): OperatorStore => {
  const operators = operatorModel(connection);
  const tokens = tokenModel(connection);
  const checkAssistantIds = createAssistantIdsCheck(connection);

  const insert = async (given: Pick<StoredOperator, 'email' | 'role'> & Partial<StoredOperator>): Promise<Operator> => {
    const stored: StoredOperator = {
      _id: newId(),
      passwordHash: null,
      disabled: false,
      generation: 1,
      link: null,
      createdAt: serverDate(),
      lastSignInAt: null,
      ...given,
    };
    await collectionOf(operators)
      .insertOne(stored)
      .catch((cause: unknown) => {
        throw isDuplicateKey(cause) ? invalid('email', 'taken', 'already belongs to an operator') : cause;
      });
    return toOperator(stored);
  };

  const change = async (filter: Record<string, unknown>, update: Record<string, unknown>): Promise<Operator | null> => {
    const stored = await operators.findOneAndUpdate(filter, update, AFTER).lean();
    return stored && toOperator(stored);
  };

  const getChanged = async (operatorId: string, update: Record<string, unknown>): Promise<Operator> => {
    return orNotFound(await change({ _id: operatorId }, update));
  };

  const ACTIVE_OWNER = { role: 'owner', disabled: false, passwordHash: { $ne: null } } as const;

  /**
   * Ensures that at least one other owner can sign in. The transaction also writes to that owner: if two owners remove
   * each other concurrently, one transaction conflicts, is tried again and finds no other owner.
   */
  const requireAnotherOwner = async (operatorId: string, session: ClientSession): Promise<void> => {
    const other = await operators
      .findOneAndUpdate({ ...ACTIVE_OWNER, _id: { $ne: operatorId } }, { $inc: { vouched: 1 } }, { session })
      .lean();
    if (!other) throw invalid('operatorId', 'last_owner', 'is the last owner who can sign in');
  };

  return {
    models: [operators],

    createOperator: async ({ email, role, password, assistantIds = null }) =>
      insert({
        email,
        role,
        assistantIds: await checkAssistantIds({ role, assistantIds }),
        passwordHash: await hashPassword(password, email),
      }),

    findOperator: async (operatorId) => {
      const stored = await operators.findById(operatorId).lean();
      return stored && toOperator(stored);
    },

    getOperator: async (operatorId) => {
      return toOperator(orNotFound(await operators.findById(operatorId).lean()));
    },

    findByEmail: async (email) => {
      const stored = await operators.findOne({ email }).lean();
      return stored && toOperator(stored);
    },

    findAccount: (email) => operators.findOne({ email }).select({ passwordHash: 1 }).lean(),

    findFirstOwner: async () => {
      const stored = await operators.findOne({ role: 'owner' }).sort({ createdAt: 1 }).lean();
      return stored && toOperator(stored);
    },

    listOperators: async () =>
      (await operators.find().sort({ createdAt: 1 }).lean()).map((stored) => toOperator(stored)),

    checkSignIn: async (email, password, block) => {
      const stored = await operators.findOne({ email }).lean();
      const right = await isPassword(stored?.passwordHash ?? null, password, block);
      if (!right || !stored) return null;
      // The filter matches nothing if the account was disabled or its password changed during the comparison.
      const { _id, passwordHash } = stored;
      return change({ _id, passwordHash, disabled: false }, { $set: { lastSignInAt: serverDate() } });
    },

    invite: async ({ email, role, assistantIds: ids = null }) => {
      const { token, link } = newLink();
      const assistantIds = await checkAssistantIds({ role, assistantIds: ids });
      return { operator: await insert({ email, role, assistantIds, link }), token, expiresAt: link.until };
    },

    makeLink: async (operatorId) => {
      const { token, link } = newLink();
      return { operator: await getChanged(operatorId, { $set: { link } }), token, expiresAt: link.until };
    },

    findByLink: async (token) => {
      const filter = { 'link.hash': hashSecret(token), 'link.until': { $gt: serverDate() }, disabled: false };
      const stored = await operators.findOne(filter).lean();
      return stored && toOperator(stored);
    },

    useLink: async (token, password, block) => {
      const filter = { 'link.hash': hashSecret(token), 'link.until': { $gt: serverDate() }, disabled: false };
      if (!(await operators.findOne(filter).lean())) return null;
      const passwordHash = await hashPassword(password, block);
      const set = { passwordHash, link: null, lastSignInAt: serverDate() };
      return change(filter, { $set: set, $inc: { generation: 1 } });
    },

    changePassword: async (operatorId, current, next) => {
      const stored = await operators.findById(operatorId).lean();
      if (!(await isPassword(stored?.passwordHash ?? null, current, operatorId))) return null;
      const set = { passwordHash: await hashPassword(next, operatorId), link: null };
      // The filter contains the hash that was compared, so only one of two concurrent changes succeeds.
      return change({ _id: operatorId, passwordHash: stored?.passwordHash }, { $set: set, $inc: { generation: 1 } });
    },

    updateOperator: (operatorId, { role, disabled, assistantIds }) =>
      connection.transaction(async (session) => {
        const before = await operators.findById(operatorId).session(session).lean();
        if (!before) throw notFound();
        const ids = assistantIds === undefined && role === 'owner' ? null : assistantIds;
        const set = {
          ...(role !== undefined && { role }),
          ...(disabled !== undefined && { disabled }),
          ...(ids !== undefined && {
            assistantIds: await checkAssistantIds({ role: role ?? before.role, assistantIds: ids }),
          }),
          ...(disabled && { link: null }),
        };
        if (disabled || (role !== undefined && role !== 'owner')) {
          if (before.role === 'owner') await requireAnotherOwner(operatorId, session);
          // Tokens are revoked permanently, so that a stolen token does not work again if the operator is enabled
          // later.
          const theirs = { createdBy: operatorId, revokedAt: null };
          await tokens.updateMany(theirs, { revokedAt: serverDate() }, { session });
        }
        const update = {
          $set: { ...set, accessChangedAt: serverDate() },
          $unset: { released: 1 },
          ...(disabled && { $inc: { generation: 1 } }),
        };
        const stored = await operators.findByIdAndUpdate(operatorId, update, { ...AFTER, session }).lean();
        return toOperator(orNotFound(stored));
      }),

    findUnreleased: async (limit) =>
      (await operators.find({ released: null }).limit(limit).lean()).map((stored) => ({
        operator: toOperator(stored),
        changedAt: stored.accessChangedAt ?? null,
      })),

    markReleased: async (operatorId, changedAt) => {
      await operators.updateOne({ _id: operatorId, accessChangedAt: changedAt }, { $set: { released: true } });
    },

    endSessions: (operatorId) => getChanged(operatorId, { $inc: { generation: 1 } }),
  };
};

/** Who may use the operator API, and what they did. */
export type OperatorStores = { operators: OperatorStore; tokens: TokenStore; audit: Audit };

/**
 * Opens the stores for operators, tokens and the audit trail. The API, the admin command and the quickstart use these
 * stores; workers do not.
 */
export const openOperators = async (connection: Connection): Promise<OperatorStores> => {
  const operators = createOperatorStore(connection);
  const tokens = createTokenStore(connection);
  const audit = createAudit(connection);
  await buildIndexes(connection, [...operators.models, ...tokens.models, ...audit.models, sessionModel(connection)]);
  return { operators, tokens, audit };
};
