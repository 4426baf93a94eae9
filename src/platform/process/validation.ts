import * as z from 'zod';
import { ApiError, type ErrorDetail, invalid, MAX_DETAILS } from './errors.ts';
import { createSlices } from './slices.ts';

type TreeNode = { value: unknown; key: string; parent: TreeNode | null };

/**
 * True if a text can be stored. A lone surrogate is refused, because it can be neither stored nor sent without loss.
 * NUL is refused, because MongoDB does not accept it in patterns.
 */
export const isStorableText = (text: string): boolean => text.isWellFormed() && !text.includes('\0');

const pathOf = (node: TreeNode): string => {
  const keys: string[] = [];
  for (let current: TreeNode | null = node; current?.parent; current = current.parent) keys.unshift(current.key);
  return keys.join('.');
};

/**
 * The dotted path of the first string that cannot be stored. The search is a loop, because JSON may be nested deeper
 * than the call stack allows.
 */
export const findUnstorable = (whole: unknown): string | null => {
  const pending: TreeNode[] = [{ value: whole, key: '', parent: null }];
  for (let node = pending.pop(); node; node = pending.pop()) {
    const { value } = node;
    if (typeof value === 'string' && !isStorableText(value)) return pathOf(node);
    if (typeof value !== 'object' || value === null) continue;
    for (const [key, inner] of Object.entries(value).toReversed()) pending.push({ value: inner, key, parent: node });
  }
  return null;
};

export const MAX_URL_LENGTH = 2_048;

/**
 * Parses an address from outside. Null if it is none, or is longer than `MAX_URL_LENGTH`: the marks of a long host are
 * sorted in quadratic time.
 */
export const parseUrl = (text: string, base?: string): URL | null =>
  text.length > MAX_URL_LENGTH ? null : URL.parse(text, base);

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

/** The cursor parameter of a query, in base64url. `decode` checks that the list has made this cursor. */
export const cursor = z
  .string()
  .regex(/^[\w-]{1,500}$/)
  .meta({ description: 'The `nextCursor` of the previous page. Any other text is refused with 422.' });

/**
 * Encodes a position in a list as a cursor that callers cannot read. A cursor whose position does not match the schema
 * is refused with 422. `field`: the parameter that has it.
 */
export const createCursor = <Position>(schema: z.ZodType<Position>, field = 'cursor') => ({
  encode: (position: Position): string => Buffer.from(JSON.stringify(position)).toString('base64url'),

  decode: (text: string): Position => {
    try {
      return schema.parse(JSON.parse(Buffer.from(text, 'base64url').toString()));
    } catch {
      throw invalid(field, 'invalid', 'is not a cursor of this list');
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

/** The part of a JSON Schema that describes the allowed values. */
type Shape = {
  type?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  enum?: unknown[];
  const?: unknown;
  properties?: Record<string, Shape>;
  items?: Shape;
  anyOf?: Shape[];
  oneOf?: Shape[];
};

type Issue = Parameters<z.core.$ZodErrorMap>[0];

const shapes = new WeakMap<z.ZodType, Shape>();

/**
 * The shape of a schema, computed only at the schema's first error. A schema without a JSON form gets shorter messages.
 */
const shapeOf = (schema: z.ZodType): Shape => {
  const known = shapes.get(schema);
  if (known) return known;
  let shape: Shape = {};
  try {
    shape = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any', reused: 'inline' }) as Shape;
  } catch {
    // The schema uses an id twice, or contains a cycle. Messages are then made without the shape.
  }
  shapes.set(schema, shape);
  return shape;
};

const alternativesOf = (shape: Shape): Shape[] => [shape, ...(shape.anyOf ?? []), ...(shape.oneOf ?? [])];

/** All shapes that a value at this path may have. A union has more than one shape. */
const shapesAt = (shape: Shape, [first, ...rest]: readonly PropertyKey[] = []): Shape[] => {
  const alternatives = alternativesOf(shape);
  if (first === undefined)
    return alternatives.filter(({ type, properties }) => properties || (type && type !== 'null'));
  return alternatives.flatMap((way) => {
    const inner = typeof first === 'number' ? way.items : way.properties?.[String(first)];
    return inner ? shapesAt(inner, rest) : [];
  });
};

const listOf = (values: readonly unknown[]): string => values.map(String).join(', ');

const formatNumber = (value: unknown): string => Number(value).toLocaleString('en', { useGrouping: false });

const isBound = (value: number | undefined): value is number =>
  value !== undefined && Math.abs(value) < Number.MAX_SAFE_INTEGER;

const describeNumber = ({ type, minimum, maximum }: Shape): string => {
  const kind = type === 'integer' ? 'a whole number' : 'a number';
  if (isBound(minimum) && isBound(maximum))
    return `must be ${kind} from ${formatNumber(minimum)} to ${formatNumber(maximum)}`;
  if (isBound(minimum)) return `must be ${kind} of at least ${formatNumber(minimum)}`;
  return isBound(maximum) ? `must be ${kind} of at most ${formatNumber(maximum)}` : `must be ${kind}`;
};

const TYPES: Record<string, string> = {
  string: 'must be a string',
  boolean: 'must be true or false',
  array: 'must be a list',
  object: 'must be an object',
  record: 'must be an object',
  date: 'must be a date',
  null: 'must be null',
};

const FORMATS: Record<string, string> = {
  email: 'must be an email address',
  url: 'must be an address such as https://example.com',
  uuid: 'must be a UUID',
  datetime: 'must be a time such as 2026-01-31T12:00:00Z',
};

const UNITS: Record<string, [one: string, more: string]> = {
  string: ['character', 'characters'],
  array: ['entry', 'entries'],
  set: ['entry', 'entries'],
};

const counted = (count: unknown, [one, more]: [string, string]): string =>
  `${formatNumber(count)} ${Number(count) === 1 ? one : more}`;

const describeSize = (
  { code, origin, ...issue }: Extract<Issue, { code: 'too_big' | 'too_small' }>,
  shape: Shape,
): string => {
  const unit = UNITS[origin];
  if (unit === undefined) {
    const own = 'maximum' in issue ? { maximum: Number(issue.maximum) } : { minimum: Number(issue.minimum) };
    return describeNumber({ ...own, ...shape });
  }
  if (code === 'too_big' && 'maximum' in issue) return `must have at most ${counted(issue.maximum, unit)}`;
  const least = 'minimum' in issue ? Number(issue.minimum) : 1;
  return least === 1 ? 'must not be empty' : `must have at least ${counted(least, unit)}`;
};

const isNumeric = (expected: string): boolean => ['number', 'int', 'nan', 'bigint'].includes(expected);

const describeType = ({ expected, input }: Extract<Issue, { code: 'invalid_type' }>, shape: Shape): string => {
  if (input === undefined) return 'is required';
  if (shape.enum) return `must be one of: ${listOf(shape.enum)}`;
  if (isNumeric(expected)) return describeNumber(expected === 'int' ? { ...shape, type: 'integer' } : shape);
  return TYPES[expected] ?? 'is not valid';
};

/** Describes a problem as the end of a sentence that begins with the field's name. Never quotes the input. */
const describeIssue = (issue: Issue, shape: Shape): string => {
  switch (issue.code) {
    case 'invalid_type':
      return describeType(issue, shape);
    case 'too_big':
    case 'too_small':
      return describeSize(issue, shape);
    case 'invalid_value':
      return issue.values.length === 1 ? `must be ${listOf(issue.values)}` : `must be one of: ${listOf(issue.values)}`;
    case 'invalid_format':
      return FORMATS[issue.format] ?? 'has the wrong format';
    case 'not_multiple_of':
      return `must be a multiple of ${formatNumber(issue.divisor)}`;
    case 'unrecognized_keys':
      return 'must not have other fields';
    default:
      return 'is not valid';
  }
};

/** Validates a value and turns zod's issues into English. Messages set in a schema are kept. */
export const check = <Schema extends z.ZodType>(schema: Schema, value: unknown) =>
  schema.safeParse(value, {
    reportInput: true,
    error: (issue) => {
      const [shape = {}, ...others] = shapesAt(shapeOf(schema), issue.path);
      const kinds = [shape, ...others].flatMap((one) => (one.const === undefined ? [] : [one.const]));
      if (issue.code === 'invalid_union' && kinds.length > 0) return `must be one of: ${listOf(kinds)}`;
      return describeIssue(issue, shape);
    },
  });

export const detailOf = (issue: z.core.$ZodIssue): ErrorDetail => {
  const field = issue.path.map(String).join('.');
  if (issue.code === 'invalid_type' && issue.input === undefined)
    return { field, code: 'required', message: 'is required' };
  const code = issue.code === 'too_big' || issue.code === 'too_small' ? 'out_of_range' : issue.code;
  return { field, code: code === 'custom' ? 'invalid' : code, message: issue.message };
};

/** Returns the value in the schema's shape. Throws a 422 that lists the wrong fields; `field` is the first of these. */
export const validate = <Schema extends z.ZodType>(schema: Schema, value: unknown): z.output<Schema> => {
  const parsed = check(schema, value);
  if (parsed.success) return parsed.data;
  throw new ApiError('validation_failed', { details: parsed.error.issues.slice(0, MAX_DETAILS).map(detailOf) });
};

const [QUOTE, BACKSLASH] = [0x22, 0x5c];
export const JSON_MARKS = { comma: 0x2c, colon: 0x3a, array: 0x5b, object: 0x7b } as const;
const LOOK_EVERY = 64 * 1024;

/**
 * Calls `onMark` with each comma, colon and opening bracket of JSON, outside of its strings. It is for JSON that is not
 * parsed yet, because parsing a million small values would hold the event loop for some hundred milliseconds. Other
 * work runs in between. `onMark` throws if there are too many.
 */
export const forEachJsonMark = async (bytes: Buffer, onMark: (mark: number) => void): Promise<void> => {
  const { comma, colon, array, object } = JSON_MARKS;
  const slices = createSlices();
  let [look, inString] = [LOOK_EVERY, false];
  for (let at = 0; at < bytes.length; at += 1) {
    const code = bytes[at];
    if (inString) {
      if (code === BACKSLASH) at += 1;
      else if (code === QUOTE) inString = false;
    } else if (code === QUOTE) inString = true;
    else if (code === comma || code === colon || code === array || code === object) onMark(code);
    if (at < look) continue;
    look = at + LOOK_EVERY;
    if (slices.isOver()) await slices.next();
  }
};

/**
 * Removes trailing slashes. A loop does this, because a regular expression for trailing slashes takes quadratic time.
 */
export const withoutSlashes = (address: string): string => {
  let end = address.length;
  while (address[end - 1] === '/') end -= 1;
  return address.slice(0, end);
};
