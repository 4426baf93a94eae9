import type { Request, Response } from 'express';
import type * as z from 'zod';
import type { BodyOf, Declaration, QueryOf } from '../platform/operation.ts';
import type { Audience } from '../operators/roles.ts';
import type { Caller } from '../operators/token.ts';

/** What the path's `:id` names: its assistant must be one that the caller has. */
export type Resource =
  | 'assistant'
  | 'conversation'
  | 'conversation or own playground'
  | 'turn'
  | 'key'
  | 'endpoint'
  | 'delivery';

/**
 * Agents and limited tokens call these too, so each says what of theirs it is about: `each` = the answer holds only what the
 * caller has; null = the whole service, or the caller. `peopleOnly`: no operator token may, whatever its scope.
 */
type ForSome = { audience: Exclude<Audience, 'anyone'>; resource: Resource | 'filtered' | null; peopleOnly?: true };
type ForAnyone = { audience: 'anyone'; resource?: never; peopleOnly?: never };

/**
 * One operation of the operators' side, said once: the router mounts it, the door asks `audience`, zod checks `query` and
 * `body`, the OpenAPI document lists it, and `audit` names it in the trail. Its path stands below `/operator/v1`.
 */
export type Operation = (ForSome | ForAnyone) &
  Declaration & {
    /** The action's name in the audit trail. Required of every change, or the reason it leaves no line is in its file. */
    audit?: string;
    /** A limit counts what succeeds too, and says so in the headers. */
    limited?: boolean;
  };

export const operation = <const One extends Operation>(one: One): One => one;

export type Note = { target: string; details?: Record<string, string | number | boolean | null> };

export type Call<One extends Operation> = {
  params: Record<string, string>;
  query: QueryOf<One>;
  body: BodyOf<One>;
  /** Who is signed in, or the token; not for an operation for anyone. */
  operator: Caller;
  /** What the audit trail says this was done to; by default the path's `id`. */
  note: (note: Note) => void;
  req: Request;
  res: Response;
};

export type AnswerOf<One extends Operation> = One extends { answer: infer Schema extends z.ZodType }
  ? z.input<Schema>
  : void;

/** An operation with what does it; `call` has been checked by the time it is called. */
export type Handled = { operation: Operation; handle: (call: Call<Operation>) => Promise<unknown> };

export const handled = <One extends Operation>(
  one: One,
  handle: (call: Call<One>) => Promise<AnswerOf<One>>,
): Handled => ({
  operation: one,
  handle, // the router checks the call by the operation's own schemas before it gets here
});
