import { EVENT_TYPES, listErrorCodes, listShapes, type Schema } from './shapes.ts';

const text = (value: string): string => `'${value}'`;

const commentOf = ({ description }: Schema, indent = ''): string =>
  description === undefined ? '' : `${indent}/** ${description.replaceAll('*/', '* /').replace(/\s*\n\s*/g, ' ')} */\n`;

const fieldsOf = ({ properties = {}, required = [] }: Schema): string =>
  Object.entries(properties)
    .map(([name, one]) => `${commentOf(one)}${name}${required.includes(name) ? '' : '?'}: ${typeOf(one)};`)
    .join('\n');

const ofOne = (type: string, schema: Schema): string => {
  if (type === 'integer') return 'number';
  if (type === 'array') return `${inBrackets(typeOf(schema.items ?? {}))}[]`;
  if (type !== 'object') return type;
  if (schema.properties) return `{\n${fieldsOf(schema)}\n}`;
  const values = typeof schema.additionalProperties === 'object' ? typeOf(schema.additionalProperties) : 'unknown';
  return `Record<string, ${values}>`;
};

const inBrackets = (type: string): string => (type.includes(' | ') && !type.startsWith('{') ? `(${type})` : type);

const typeOf = (schema: Schema): string => {
  if (schema.$ref !== undefined) return schema.$ref;
  if (schema.const !== undefined) return text(schema.const);
  if (schema.enum) return schema.enum.map(text).join(' | ');
  const either = schema.anyOf ?? schema.oneOf;
  if (either) return [...new Set(either.map(typeOf))].join(' | ');
  if (schema.type === undefined) return 'unknown';
  return [schema.type]
    .flat()
    .map((type) => ofOne(type, schema))
    .join(' | ');
};

/** The types of `@parley/client`. */
export const typescriptTypes = (): string =>
  [
    '// Generated from the API document: node scripts/run.js generate',
    ...listShapes().map(({ name, schema }) => `${commentOf(schema)}export type ${name} = ${typeOf(schema)};`),
    '/** An event of an endpoint. New kinds may come: ignore those that you do not know. */\n' +
      `export type ParleyEvent = ${EVENT_TYPES.map(([, name]) => name).join(' | ')};`,
    '/** New codes may come. */\n' +
      `export type ErrorCode = ${listErrorCodes().map(text).join(' | ')} | (string & {});`,
  ].join('\n\n') + '\n';
