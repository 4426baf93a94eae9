import type { Request, Response } from 'express';
import type * as z from 'zod';
import type { BodyOf, Declaration, QueryOf } from '../platform/operation.ts';
import type { Operator } from '../operators/operator.ts';
import type { Audience } from '../operators/roles.ts';

/** What the path's `:id` names, which whoever calls must have; null = nothing but themselves. */
export type About = 'assistant' | 'conversation' | 'conversation or own playground';

/** Agents call these too: none is declared without saying what of theirs it is about. */
type ForOperators = { audience: Extract<Audience, 'operators'>; about: About | null };
type ForOthers = { audience: Exclude<Audience, 'operators'>; about?: never };

/**
 * One operation of the operators' side, said once: the router mounts it, the door asks `audience`, zod checks `query` and
 * `body`, the OpenAPI document lists it, and `audit` names it in the trail. Its path stands below `/operator/v1`.
 */
export type Operation = (ForOperators | ForOthers) &
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
  /** Who is signed in; not for an operation for anyone. */
  operator: Operator;
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
