import { beforeAll, expect, test } from 'vitest';
import * as z from 'zod';
import { OPERATIONS } from '../../src/api/operator-routes.ts';
import { ConfigError, readConfig } from '../../src/platform/process/config.ts';
import { check } from '../../src/platform/process/validation.ts';
import { anAssistant, aTurn, type ErrorBody, type TestAssistant } from '../support/builders.ts';
import { anOperator, type OperatorClient } from '../support/operator-client.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0, replyWorkers: 0 });
let owner: OperatorClient;
let assistant: TestAssistant;

beforeAll(async () => {
  owner = await anOperator(stack);
  assistant = await anAssistant(stack);
});

/** Words of zod's default messages. */
const ZODS = /expected|received|invalid|too (big|small)|NaN|[<>]=|unrecognized|option|discriminator|pattern|regex|\//i;
const PLAIN = /^(must|is|has|belongs|contains|an assistant has|a conversation has) /;

type Body = { error: { details?: { field: string; message: string }[] } };

const FEW_WRONG = [undefined, '', 'x'.repeat(9_000), -1, ['', 7], { a: 1 }, 'a\nb'];
const WRONG = sized<unknown[]>({
  everyday: FEW_WRONG,
  long: [...FEW_WRONG, null, 'x', 0.5, 1e12, true, [], {}, '\ud800'],
});
const fieldsOf = (schema: z.ZodType): string[] => {
  const shape = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' });
  const ways = [shape, ...(shape.oneOf ?? []), ...(shape.anyOf ?? [])] as { properties?: object }[];
  return [...new Set(ways.flatMap(({ properties }) => Object.keys(properties ?? {})))];
};

/** The wrong fields of one request: every day all at once, and each alone in the long suite. */
const together = (fields: string[]): string[][] => sized({ everyday: [fields], long: fields.map((field) => [field]) });

test('every fault in every field of the operator API has a plain message', async () => {
  const { assistantId } = await anAssistant(stack);
  const said = new Map<string, string>();
  const notSpoken: string[] = ['/session', '/links/read', '/links/use', '/session/password']; // these have limits
  for (const { method, path, body } of OPERATIONS) {
    if (!body || notSpoken.includes(path)) continue;
    const at = path.replace(':id', assistantId).replace(/:\w+/g, 'x');
    const kinds = path.endsWith('/engine') ? [{}, { kind: 'openai' }] : [{}];
    for (const kind of kinds) {
      for (const fields of together(fieldsOf(body))) {
        const send = (value: unknown) => {
          const wrong = Object.fromEntries(fields.map((field) => [field, value]));
          return owner.call<Body>(method.toUpperCase(), at, { ...wrong, ...kind });
        };
        for (const { status, body: answer } of await Promise.all(WRONG.map(send))) {
          expect([429, 503]).not.toContain(status);
          for (const { field: where, message } of answer?.error?.details ?? []) said.set(message, `${at} ${where}`);
        }
      }
    }
  }

  const wrong = [...said].filter(
    ([message]) => !PLAIN.test(message) || ZODS.test(message.replace(/https:\/\/|one of: .*/, '')),
  );
  expect(wrong).toEqual([]);
  expect(said.size).toBeGreaterThan(20);
});

test.each([
  ['/keys/x', 'PATCH', { limitPerMinute: 0 }, 'limitPerMinute must be a whole number from 1 to 1000000'],
  ['/keys/x', 'PATCH', { limitPerMinute: null }, 'limitPerMinute must be a whole number from 1 to 1000000'],
  ['/keys/x', 'PATCH', { name: ' ' }, 'name must not be empty'],
  ['/keys/x', 'PATCH', { name: 'x'.repeat(101) }, 'name must have at most 100 characters'],
  [
    '/assistants/:id',
    'PATCH',
    { dedupeWindowSeconds: 1.5 },
    'dedupeWindowSeconds must be a whole number from 0 to 600',
  ],
  ['/assistants/:id', 'PATCH', { threshold: 'high' }, 'threshold must be a number from 0 to 1'],
  ['/assistants/:id', 'PATCH', { guard: 'on' }, 'guard must be one of: off, flag, refuse'],
  ['/assistants/:id/engine', 'PUT', { kind: 'x' }, 'kind must be one of: retrieval, openai'],
  [
    '/assistants/:id/engine',
    'PUT',
    { kind: 'openai', model: 'm', baseUrl: 'x' },
    'baseUrl must be an address such as https://example.com',
  ],
  ['/operators', 'POST', { email: 'x' }, 'email must be an email address'],
])('%s answers %s %j with: %s', async (path, method, body, message) => {
  const answer = await owner.call<ErrorBody>(method, path.replace(':id', assistant.assistantId), body);

  expect([answer.status, answer.body.error.message]).toEqual([422, message]);
});

test('the chat API and the start have plain messages too', async () => {
  const { chat, call } = assistant;
  const { body } = await chat(aTurn({ message: 7 }));
  const limit = await call<ErrorBody>('/api/v1/conversations?limit=x');
  const start = (env: Record<string, string>) => {
    try {
      return readConfig(env);
    } catch (failure) {
      return failure instanceof ConfigError && failure.message;
    }
  };

  expect((body as unknown as ErrorBody).error.message).toBe('message must be a string');
  expect(limit.body.error.message).toBe('limit must be a whole number from 1 to 100');
  expect(start({ PORT: 'x', LOG_LEVEL: 'loud' })).toBe(
    'LOG_LEVEL: must be one of: trace, debug, info, warn, error, fatal, silent\nPORT: must be a whole number from 0 to 65535',
  );
});

test('unions in a list and fields deep in a body are named too', () => {
  const kind = z.discriminatedUnion('kind', [z.object({ kind: z.literal('a') }), z.object({ kind: z.literal('b') })]);
  const schema = z.object({ list: z.array(z.object({ kind, name: z.string().min(3) })).max(2) });

  const parsed = check(schema, { list: [{ kind: { kind: 'c' }, name: 'x' }, { kind: { kind: 'a' } }] });
  const long = check(schema, { list: [1, 2, 3] });

  expect(parsed.error?.issues.map(({ path, message }) => `${path.join('.')} ${message}`)).toEqual([
    'list.0.kind.kind must be one of: a, b',
    'list.0.name must have at least 3 characters',
    'list.1.name is required',
  ]);
  expect(long.error?.issues.map(({ message }) => message)).toContain('must have at most 2 entries');
});
