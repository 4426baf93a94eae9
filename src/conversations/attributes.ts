import * as z from 'zod';
import { invalid } from '../process/errors.ts';
import { isStorableText } from '../process/validation.ts';
import type { Attribute } from './conversation.ts';

const MAX_ATTRIBUTES = 50;
const MAX_BYTES = 8 * 1024;
const MAX_VALUE = 500;
const NAME = /^[a-z0-9_]{1,64}$/;

/** What callers tell about a visitor, as one flat object on the wire. */
export const AttributesView = z
  .record(z.string(), z.union([z.string(), z.number(), z.boolean()]))
  .meta({ id: 'Attributes', example: { plan: 'pro', orders: 3 } });
export type AttributesView = z.infer<typeof AttributesView>;

/** One attribute that is set, or removed if its value is null. */
export type AttributeChange = { name: string; value: Attribute['value'] | null };

const isValue = (value: unknown): value is AttributeChange['value'] =>
  value === null ||
  typeof value === 'boolean' ||
  (typeof value === 'number' && Number.isFinite(value)) ||
  (typeof value === 'string' && isStorableText(value) && [...value].length <= MAX_VALUE);

/**
 * Attributes to set or remove. The object becomes a list at once, because its names come from outside: zod drops the
 * name `__proto__` from a record, and MongoDB does not accept every name as a key.
 */
export const AttributesInput = z
  .unknown()
  .transform((body, context): AttributeChange[] =>
    Object.entries(body as object).flatMap(([name, value]: [string, unknown]) => {
      const refuse = (message: string): [] => {
        context.addIssue({ code: 'custom', path: NAME.test(name) ? [name] : ['attributes'], message });
        return [];
      };
      if (!NAME.test(name)) return refuse('must have names of 1–64 characters of a–z, 0–9 and _');
      if (isValue(value)) return [{ name, value }];
      return refuse(`must be a text of at most ${MAX_VALUE} characters, a number, true, false or null`);
    }),
  )
  .meta({
    id: 'AttributesInput',
    override: {
      type: 'object',
      propertyNames: { pattern: '^[a-z0-9_]{1,64}$' },
      additionalProperties: {
        anyOf: [{ type: 'string', maxLength: MAX_VALUE }, { type: 'number' }, { type: 'boolean' }, { type: 'null' }],
      },
    },
  });

export const toAttributesView = (attributes: Attribute[] = []): AttributesView =>
  Object.fromEntries(attributes.map(({ name, value }) => [name, value]));

/** The attributes after a change. Known names keep their place. Throws a 422 if the result is too large. */
export const mergeAttributes = (stored: Attribute[], changes: AttributeChange[]): Attribute[] => {
  const merged = new Map<string, AttributeChange['value']>(stored.map(({ name, value }) => [name, value]));
  for (const { name, value } of changes) merged.set(name, value);
  const kept = [...merged].flatMap(([name, value]) => (value === null ? [] : [{ name, value }]));
  if (kept.length > MAX_ATTRIBUTES)
    throw invalid('attributes', 'too_many', `must be at most ${MAX_ATTRIBUTES} after the change`);
  if (Buffer.byteLength(JSON.stringify(toAttributesView(kept))) > MAX_BYTES)
    throw invalid('attributes', 'too_large', 'must be at most 8 KiB after the change');
  return kept;
};
