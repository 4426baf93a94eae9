import * as z from 'zod';
import { createTimeCursor } from '../http/cursor.ts';

/** A time that is a string in JSON. */
export const time = z.date().meta({ description: 'ISO 8601, UTC.', override: { type: 'string', format: 'date-time' } });
export const uuid = z.uuid();
export const nextCursor = z
  .string()
  .nullable()
  .meta({ description: 'For `cursor` of the next page; null on the last page.' });

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
