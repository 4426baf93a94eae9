import type { Request, Response } from 'express';
import * as z from 'zod';
import { createTimeCursor } from '../platform/process/validation.ts';
import type { BodyOf, Declaration, QueryOf } from '../platform/http/operation.ts';
import { BODY_WAIT_MS, type Within } from '../platform/http/request-slots.ts';
import type { Audience } from './operator.ts';
import type { OperatorCaller } from './token.ts';

/** A time that is a string in JSON. */
export const time = z.date().meta({ description: 'ISO 8601, UTC.', override: { type: 'string', format: 'date-time' } });
export const uuid = z.uuid();
export const nextCursor = z
  .string()
  .nullable()
  .meta({ description: 'For `cursor` of the next page; null on the last page.' });

/** A count for each of these names. */
export const countsOf = <Name extends string>(names: readonly Name[]) => {
  const count = z.int().min(0);
  return z.object(Object.fromEntries(names.map((name) => [name, count])) as Record<Name, typeof count>); // for each name
};

/** One line of text that can be stored and shown. */
export const line = (max: number) =>
  z
    .string()
    .trim()
    .min(1)
    .max(max)
    .refine((value) => value.isWellFormed() && !/\p{Cc}/u.test(value), 'must be one line of well-formed Unicode');

/** A text of several lines that can be stored and shown. */
export const textField = (max: number) =>
  z
    .string()
    .trim()
    .min(1)
    .max(max)
    .refine((value) => value.isWellFormed(), 'must be well-formed Unicode');

/** A tag as operators give it. */
export const TagName = z.object({
  tag: line(50),
  color: z
    .string()
    .regex(/^#[0-9a-f]{6}$/, 'must be a colour like #1e90ff')
    .nullable()
    .default(null),
});

/** The cursor of lists that are ordered by a time and an id. */
export const timeCursor = createTimeCursor(/^[\w-]{1,64}$/);

/** Removes fields whose value is undefined, because a filter treats them differently from absent fields. */
export const definedFields = <Fields extends Record<string, unknown>>(
  fields: Fields,
): { [Name in keyof Fields]?: Exclude<Fields[Name], undefined> } =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as never; // undefined values are removed

/**
 * The kind of object that the path's `:id` refers to. The object must belong to an assistant that the caller may use.
 */
export type Resource =
  | 'assistant'
  | 'conversation'
  | 'conversation or own playground'
  | 'turn'
  | 'canned reply'
  | 'key'
  | 'endpoint'
  | 'recovery'
  | 'delivery';

/**
 * States which resource an operation concerns, to check the access of agents and limited tokens. `filtered`: the answer
 * contains only what the caller may see. Null: the operation concerns the whole service, or the caller. `peopleOnly`:
 * operator tokens may not call the operation, whatever their scope.
 */
type ForSome = { audience: Exclude<Audience, 'anyone'>; resource: Resource | 'filtered' | null; peopleOnly?: true };
type ForAnyone = { audience: 'anyone'; resource?: never; peopleOnly?: never };

/**
 * The declaration of one operation of the operator API. The router adds a route for it below `/operator/v1`,
 * authentication checks `audience`, zod checks `query` and `body`, the OpenAPI document describes the operation, and
 * `audit` is its name in the audit trail.
 */
export type Operation = (ForSome | ForAnyone) &
  Declaration & {
    /**
     * The action's name in the audit trail. Every operation that changes something needs a name, or a comment that
     * explains why it has no name.
     */
    audit?: string;
    /**
     * True if a rate limit also counts successful calls. The headers of the response then show the state of this limit.
     */
    limited?: boolean;
    /**
     * Set if the answer may have some MiB. The call then waits for its place (`takeRoomForAnswer`). `inTurn`: it
     * waits for something else before, so the handler takes the place (`takeRoom`).
     */
    isLarge?: true | 'inTurn';
    /** True if the call waits for something and has a limit of its own. Other calls of its session begin meanwhile. */
    lasts?: boolean;
  };

export const operation = <const One extends Operation>(one: One): One => one;

export type AuditNote = { target: string; details?: Record<string, string | number | boolean | null> };

export type Call<One extends Operation> = {
  params: Record<string, string>;
  query: QueryOf<One>;
  body: BodyOf<One>;
  /** The signed-in operator or the token. Not set for operations with the audience `anyone`. */
  operator: OperatorCaller;
  /** Sets the target and the details of the audit line. The default target is the path's `id`. */
  note: (note: AuditNote) => void;
  /** Writes the audit line now, for an answer that may take long. Otherwise it is written after the handler. */
  record: () => Promise<void>;
  /** Aborts when the caller leaves. */
  signal: AbortSignal;
  /**
   * Runs a read that may take seconds. One caller's reads of this kind wait for each other. `within`: what the read waits
   * for besides, see `createCostlyReads`.
   */
  costly: <Value>(read: () => Promise<Value>, within?: Within, waitMs?: number) => Promise<Value>;
  /** Waits for the place of a large answer, which the call keeps until the caller has the answer. */
  takeRoom: () => Promise<void>;
  req: Request;
  res: Response;
};

type Streamed<One extends Operation> = One extends { stream: object } ? null : never;

/** What a handler returns: the answer, or null if it has written a stream of events itself. */
export type AnswerOf<One extends Operation> = One extends { answer: infer Schema extends z.ZodType }
  ? z.input<Schema> | Streamed<One>
  : void;

/**
 * Pages of a long answer. Each page is read in its turn among the costly reads, and only after the caller has taken the
 * previous page. So a slow caller delays nobody.
 */
export async function* inTurns<Page>(
  pages: AsyncGenerator<Page, undefined>,
  { costly }: Pick<Call<Operation>, 'costly'>,
): AsyncGenerator<Page, undefined> {
  try {
    for (let waitMs: number | undefined; ; waitMs = BODY_WAIT_MS) {
      const { value, done } = await costly(() => pages.next(), undefined, waitMs);
      if (done) return;
      yield value;
    }
  } finally {
    await pages.return(undefined);
  }
}

/**
 * Reads a page in the place of a large answer. A page that `isFiltered` may have to read far more than it shows, so it is a
 * costly read too, and takes the place only once it is its holder's turn.
 */
export const readPage = <Page>(
  { costly, takeRoom }: Pick<Call<Operation>, 'costly' | 'takeRoom'>,
  read: () => Promise<Page>,
  { isFiltered = false } = {},
): Promise<Page> => {
  const inRoom = async <Value>(work: () => Promise<Value>): Promise<Value> => {
    await takeRoom();
    return work();
  };
  return isFiltered ? costly(read, inRoom) : inRoom(read);
};

/** Returned by a handler that has written the response itself. */
export const WRITTEN = Symbol('written');

/** An operation with its handler. The router validates the call before the handler gets it. */
export type Handled = { operation: Operation; handle: (call: Call<Operation>) => Promise<unknown> };

export const handled = <One extends Operation>(
  one: One,
  handle: (call: Call<One>) => Promise<AnswerOf<One> | typeof WRITTEN>,
): Handled => ({
  operation: one,
  handle, // the router has validated the call by the operation's own schemas
});
