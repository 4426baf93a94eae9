import * as z from 'zod';
import { invalid } from '../process/errors.ts';

/** The cursor parameter of a query, in base64url. `decode` checks that the list has made this cursor. */
export const cursor = z
  .string()
  .regex(/^[\w-]{1,500}$/)
  .meta({ description: 'The `nextCursor` of the previous page. Any other text is refused with 422.' });

/**
 * Encodes a position in a list as a cursor that callers cannot read. A cursor whose position does not match the schema
 * is refused with 422.
 */
export const createCursor = <Position>(schema: z.ZodType<Position>) => ({
  encode: (position: Position): string => Buffer.from(JSON.stringify(position)).toString('base64url'),

  decode: (text: string): Position => {
    try {
      return schema.parse(JSON.parse(Buffer.from(text, 'base64url').toString()));
    } catch {
      throw invalid('cursor', 'invalid', 'is not a cursor of this list');
    }
  },
});

type Position = { at: Date; id: string };

/** The latest time that a Date can hold. */
const LATEST_MS = 8_640_000_000_000_000;

/** The cursor of a list ordered by time, then by id. */
export const createTimeCursor = (id: RegExp) => {
  const cursors = createCursor(z.tuple([z.int().min(0).max(LATEST_MS), z.string().regex(id)]));
  return {
    encode: (position: Position): string => cursors.encode([position.at.getTime(), position.id]),

    decode: (text: string): Position => {
      const [ms, lastId] = cursors.decode(text);
      return { at: new Date(ms), id: lastId };
    },
  };
};
