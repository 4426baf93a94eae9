import * as z from 'zod';
import { createTimeCursor } from '../platform/cursor.ts';

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

/** For lists ordered by a time and an id. */
export const timeCursor = createTimeCursor(/^[\w-]{1,64}$/);

/** Only what was given: an absent field and one set to undefined differ to a filter. */
export const definedFields = <Fields extends Record<string, unknown>>(
  fields: Fields,
): { [Name in keyof Fields]?: Exclude<Fields[Name], undefined> } =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as never; // as filtered
