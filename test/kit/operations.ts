import type * as z from 'zod';
import type { Declaration } from '../../src/platform/http/operation.ts';

/** A value as JSON, where times are strings. */
type Wire<Value> = Value extends Date
  ? string
  : Value extends (infer One)[]
    ? Wire<One>[]
    : Value extends object
      ? { [Name in keyof Value]: Wire<Value[Name]> }
      : Value;

/** The successful response of an operation's declaration. */
export type AnswerOf<One> = One extends { answer: infer Schema extends z.ZodType } ? Wire<z.input<Schema>> : null;

/** The address of an operation. `query` includes its question mark. */
export const addressOf = ({ path }: Declaration, params: Record<string, string> = {}, query = ''): string =>
  `${path.replace(/:(\w+)/g, (_whole, name: string) => {
    const value = params[name];
    if (value === undefined) throw new Error(`${path} needs ${name}`);
    return encodeURIComponent(value);
  })}${query}`;
