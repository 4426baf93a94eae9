import * as z from 'zod';

/** Digits alone: `Number` would also take `1e3`, `0x10` and blanks. Null: not a whole number within the bounds. */
export const parseWholeNumber = (text: string, min: number, max: number): number | null => {
  const number = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
  return number >= min && number <= max ? number : null;
};

/** A whole number of a query string, and a number in the OpenAPI document. */
export const wholeNumber = (min: number, max: number) =>
  z
    .string()
    .transform((text, context) => {
      const number = parseWholeNumber(text, min, max);
      if (number !== null) return number;
      context.addIssue(`must be a whole number from ${min} to ${max}`);
      return z.NEVER;
    })
    .meta({ override: { type: 'integer', minimum: min, maximum: max } });
