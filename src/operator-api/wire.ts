import * as z from 'zod';
import { invalid } from '../platform/errors.ts';

/** What the pages' schemas share. Times are strings in JSON. */
export const time = z.date().meta({ description: 'ISO 8601, UTC.', override: { type: 'string', format: 'date-time' } });
export const uuid = z.uuid();
export const nextCursor = z
  .string()
  .nullable()
  .meta({ description: 'For `cursor` of the next page; null on the last page.' });

/** Text for people: nothing that cannot be stored or shown. */
export const line = (max: number) =>
  z
    .string()
    .trim()
    .min(1)
    .max(max)
    .refine((value) => value.isWellFormed() && !/\p{Cc}/u.test(value), 'must be one line of well-formed Unicode');

export const wholeNumber = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d{1,9}$/, `must be a whole number from ${min} to ${max}`)
    .transform(Number)
    .refine((value) => value >= min && value <= max, `must be a whole number from ${min} to ${max}`)
    .meta({ override: { type: 'integer', minimum: min, maximum: max, pattern: undefined } });

export const cursor = z.string().max(500);

type Place = { at: Date; id: string };

/** A place in a list ordered by a time and an id. */
export const encodePlace = ({ at, id }: Place): string => Buffer.from(`${at.getTime()} ${id}`).toString('base64url');

export const decodePlace = (text: string): Place => {
  const match = /^(\d{1,15}) ([\w-]{1,64})$/.exec(Buffer.from(text, 'base64url').toString());
  if (!match) throw invalid('cursor', 'invalid', 'is not a cursor of this list');
  return { at: new Date(Number(match[1])), id: match[2] as string };
};

/** Only what was given: an absent field and one set to undefined differ to a filter. */
export const given = <Fields extends Record<string, unknown>>(
  fields: Fields,
): { [Name in keyof Fields]?: Exclude<Fields[Name], undefined> } =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as never; // as filtered
