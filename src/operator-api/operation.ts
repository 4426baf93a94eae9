import type { Request, Response } from 'express';
import type * as z from 'zod';
import type { BodyOf, Declaration, QueryOf } from '../platform/operation.ts';
import type { Audience } from '../operators/roles.ts';
import type { Caller } from '../operators/token.ts';

/** What the path's `:id` refers to. Its assistant must be one of the caller's. */
export type Resource =
  | 'assistant'
  | 'conversation'
  | 'conversation or own playground'
  | 'turn'
  | 'key'
  | 'endpoint'
  | 'delivery';

/**
 * Says which resource an operation concerns, for agents and limited tokens. `filtered`: the answer contains only what
 * the caller has access to. Null: the whole service, or the caller. `peopleOnly`: not for operator tokens, whatever
 * their scope.
 */
type ForSome = { audience: Exclude<Audience, 'anyone'>; resource: Resource | 'filtered' | null; peopleOnly?: true };
type ForAnyone = { audience: 'anyone'; resource?: never; peopleOnly?: never };

/**
 * The declaration of one operator API operation. The router mounts it below `/operator/v1`, authentication checks
 * `audience`, zod checks `query` and `body`, the OpenAPI document describes it, and `audit` names it in the audit log.
 */
export type Operation = (ForSome | ForAnyone) &
  Declaration & {
    /** The action's name in the audit log. Every change needs one, or a comment that says why it has none. */
    audit?: string;
    /** A rate limit counts successful calls too, and its state is in the headers. */
    limited?: boolean;
  };

export const operation = <const One extends Operation>(one: One): One => one;

export type Note = { target: string; details?: Record<string, string | number | boolean | null> };

export type Call<One extends Operation> = {
  params: Record<string, string>;
  query: QueryOf<One>;
  body: BodyOf<One>;
  /** The signed-in operator or the token; not for operations with the audience `anyone`. */
  operator: Caller;
  /** Sets target and details of the audit line; the default target is the path's `id`. */
  note: (note: Note) => void;
  req: Request;
  res: Response;
};

export type AnswerOf<One extends Operation> = One extends { answer: infer Schema extends z.ZodType }
  ? z.input<Schema>
  : void;

/** An operation with its handler. The router validates the call before the handler gets it. */
export type Handled = { operation: Operation; handle: (call: Call<Operation>) => Promise<unknown> };

export const handled = <One extends Operation>(
  one: One,
  handle: (call: Call<One>) => Promise<AnswerOf<One>>,
): Handled => ({
  operation: one,
  handle, // the router has validated the call by the operation's own schemas
});
