import { EVENT_TYPES, listErrorCodes, listShapes, type Schema, type Shape } from './shapes.ts';

/** What callers send is given as arguments. Only what they get has classes. */
const SENT = /(Query|Body|Request|Input)$/;

const snake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

const literal = (values: string[]): string => `Literal[${values.map((value) => JSON.stringify(value)).join(', ')}]`;

const NAMES: Record<string, string> = {
  string: 'str',
  integer: 'int',
  number: 'float',
  boolean: 'bool',
  null: 'None',
};

/** The type of a schema. An object without a name becomes a class that is added to `inner`. */
const typeOf = (schema: Schema, owner: string, inner: Shape[]): string => {
  const of = (one: Schema): string => typeOf(one, owner, inner);
  if (schema.$ref !== undefined) return schema.$ref;
  if (schema.const !== undefined) return literal([schema.const]);
  if (schema.enum) return literal(schema.enum);
  const either = schema.anyOf ?? schema.oneOf ?? [schema.type].flat().map((type) => ({ ...schema, type: type ?? '' }));
  if (either.length > 1) return [...new Set(either.map(of))].join(' | ');
  const [type = ''] = [schema.type].flat();
  if (type === 'array') return `list[${of(schema.items ?? {})}]`;
  if (type !== 'object') return NAMES[type] ?? 'object';
  if (!schema.properties) {
    const values = typeof schema.additionalProperties === 'object' ? of(schema.additionalProperties) : 'object';
    return `dict[str, ${values}]`;
  }
  const name = owner.replace(/(Event)?$/, 'Payload');
  inner.push({ name, schema });
  return name;
};

const quoted = (description: string): string =>
  `"""${description.replace(/\s*\n\s*/g, ' ').replaceAll('\\', '\\\\')}"""`;

const classOf = ({ name, schema }: Shape): string[] => {
  if (!schema.properties) return [`${name} = ${typeOf(schema, name, [])}`];
  const inner: Shape[] = [];
  const fields = Object.entries(schema.properties).flatMap(([field, one]) => {
    const type = typeOf(one, name, inner);
    const needed = schema.required?.includes(field);
    const optional = type.split(' | ').includes('None') ? type : `${type} | None`;
    const line = `    ${snake(field)}: ${needed ? type : `${optional} = None`}`;
    return one.description === undefined ? [line] : [line, `    ${quoted(one.description)}`];
  });
  const about = schema.description === undefined ? [] : [`    ${quoted(schema.description)}`, ''];
  const text = ['@dataclass(frozen=True, slots=True, kw_only=True)', `class ${name}:`, ...about, ...fields].join('\n');
  return [...inner.flatMap(classOf), text];
};

/** The types of the Python package. */
export const pythonTypes = (): string => {
  const classes = listShapes()
    .filter(({ name }) => !SENT.test(name))
    .toReversed() // a name that is used by an alias comes before it
    .flatMap(classOf);
  const names = classes.map((text) => /^(?:@.*\nclass )?(\w+)/.exec(text)?.[1] ?? '');
  const exported = ['ERROR_CODES', 'EVENT_TYPES', ...[...names, 'ParleyEvent'].toSorted()];
  return (
    [
      '# Generated from the API document: node scripts/run.js generate\n' +
        'from __future__ import annotations\n\nfrom dataclasses import dataclass\nfrom typing import Literal, Union',
      `__all__ = [\n${exported.map((name) => `    "${name}",`).join('\n')}\n]`,
      ...classes,
      `ParleyEvent = Union[${EVENT_TYPES.map(([, name]) => `\n    ${name},`).join('')}\n]\n` +
        '"""An event of an endpoint, of a kind that this version knows."""',
      `EVENT_TYPES: dict[str, type[ParleyEvent]] = {\n${EVENT_TYPES.map(([kind, name]) => `    "${kind}": ${name},`).join('\n')}\n}`,
      `ERROR_CODES = (\n${listErrorCodes()
        .map((code) => `    "${code}",`)
        .join('\n')}\n)\n"""New codes may come."""`,
    ].join('\n\n\n') + '\n'
  );
};

const TO_ASYNC: [RegExp, string][] = [
  [/^/, '# Generated from client.py: node scripts/run.js generate\n'],
  [/class Parley:/, 'class AsyncParley:'],
  [/-> Parley:/, '-> AsyncParley:'],
  [/Calls the chat API with an API key\./, '`Parley` for asyncio.'],
  [/import json\n/, 'import asyncio\nimport json\n'],
  [/import Callable, Iterator/, 'import AsyncIterator, Callable'],
  [/(?<!Async)Iterator\[/g, 'AsyncIterator['],
  [/httpx\.(BaseTransport|Client)/g, 'httpx.Async$1'],
  [/__(enter|exit)__/g, '__a$1__'],
  [/self\._http\.close/, 'self._http.aclose'],
  [/(\n +)with /g, '$1async with '],
  [/for (\w+) in (page|response\.iter_bytes\(\)):/g, 'async for $1 in $2:'],
  [/\.(iter_bytes|read\(\))/g, '.a$1'],
  [/time\.sleep\(/g, 'asyncio.sleep('],
  [
    /(asyncio\.sleep|response\.aread|self\._http\.(?:request|aclose)|self\.(?:close|turn|_answer|_repeat))\(/g,
    'await $1(',
  ],
  // The others return an iterator and wait for nothing.
  [/ {4}def (?!(?:__init__|messages|conversations)\()/g, '    async def '],
];

/** The client for asyncio, made of the one that blocks: they have one door. */
export const pythonAsyncClient = (client: string): string =>
  TO_ASYNC.reduce((text, [pattern, by]) => text.replace(pattern, by), client);
