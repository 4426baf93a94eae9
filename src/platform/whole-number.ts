import * as z from 'zod';

const DIGITS = /^\d{1,16}$/;

/**
 * Parses a number that consists only of digits; `Number` would also accept `1e3`, `0x10` and blanks. Null when the text
 * is not a whole number within the limits.
 */
export const parseWholeNumber = (text: string, min: number, max: number): number | null => {
  const number = DIGITS.test(text) ? Number(text) : Number.NaN;
  return number >= min && number <= max ? number : null;
};

/** A whole number in a query string, documented as a number in OpenAPI. */
export const wholeNumber = (min: number, max: number) => {
  const message = `must be a whole number from ${min} to ${max}`;
  return z
    .string()
    .regex(DIGITS, message)
    .transform((text, context) => {
      const number = parseWholeNumber(text, min, max);
      if (number !== null) return number;
      context.addIssue(message);
      return z.NEVER;
    })
    .meta({ override: { type: 'integer', minimum: min, maximum: max } });
};
