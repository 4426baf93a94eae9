import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import * as z from 'zod';
import { type Service, startRedis } from '../../scripts/services.ts';
import { secretsIn } from '../../src/platform/process/credentials.ts';
import { createLogger, describeFailure, toLoggable } from '../../src/platform/process/logger.ts';
import { runAdmin } from '../support/admin.ts';
import { failureOfStart } from '../support/failed-start.ts';
import { freePort } from '../../scripts/services.ts';
import { type Kind, launch, MAINS } from '../kit/processes.ts';
import { longTest, sized } from '../support/size.ts';
import { newEnvironment } from '../support/stack.ts';

const CANARY = 'canaryCANARYcanary';

let guarded: Service;
let nobody: number;
beforeAll(async () => {
  guarded = await startRedis();
  nobody = await freePort();
  const redis = new Redis(guarded.url);
  await redis.config('SET', 'requirepass', 'the right one');
  redis.disconnect();
});
afterAll(async () => guarded.dispose());

const run = async (args: string[], env: Record<string, string>): Promise<{ status: number | null; said: string }> => {
  const { PATH = '', HOME = '', NODE_COMPILE_CACHE = '' } = process.env;
  const { output, ended } = launch(process.execPath, args, { env: { PATH, HOME, NODE_COMPILE_CACHE, ...env } });
  const { status } = await ended;
  return { status, said: output.said };
};

const mongoWith = (env: Record<string, string>, userinfo: string): string =>
  (env['MONGODB_URL'] ?? '').replace('//', `//${userinfo}@`).concat('?authSource=admin');

/** Settings that stop the start. Each contains the canary. */
const settings: [string, () => Record<string, string>][] = [
  ['a wrong Redis password', () => ({ REDIS_URL: guarded.url.replace('//', `//:${CANARY}@`) })],
  ['a wrong Redis user', () => ({ REDIS_URL: guarded.url.replace('//', `//somebody:${CANARY}@`) })],
  ['Redis unavailable', () => ({ REDIS_URL: `redis://somebody:${CANARY}@127.0.0.1:${nobody}` })],
  ['a malformed Redis address', () => ({ REDIS_URL: `redis//:${CANARY}@127.0.0.1` })],
  [
    'a Redis password with special characters',
    () => ({ REDIS_URL: `redis://:${CANARY}/"'${CANARY}@127.0.0.1:${nobody}` }),
  ],
  ['a wrong MongoDB password', () => ({ MONGODB_URL: mongoWith(newEnvironment(), `somebody:${CANARY}`) })],
  ['MongoDB unavailable', () => ({ MONGODB_URL: `mongodb://somebody:${CANARY}@127.0.0.1:${nobody},127.0.0.1:1/x` })],
  ['a malformed MongoDB address', () => ({ MONGODB_URL: `mongodb:/somebody:${CANARY}@127.0.0.1/x` })],
  [
    'a MongoDB password with special characters',
    () => ({ MONGODB_URL: `mongodb://somebody:${CANARY}/@"${CANARY}@127.0.0.1/x` }),
  ],
  ['an unknown MongoDB option', () => ({ MONGODB_URL: `mongodb://127.0.0.1/x?${CANARY}=${CANARY}` })],
  ['an invalid key', () => ({ ENCRYPTION_KEY: CANARY })],
  ['invalid keys', () => ({ ENCRYPTION_KEY: `${CANARY}:${CANARY},a:${CANARY}` })],
  ['an invalid public address', () => ({ PUBLIC_URL: `ftp://somebody:${CANARY}@example.com` })],
];

const kinds: Kind[] = ['api', 'reply', 'delivery'];
/** All kinds of processes start in the same way, so it is enough to try each setting on one kind. */
const starts = settings.map(([name, make], nth) => [name, kinds[nth % kinds.length] as Kind, make] as const);
/** The next test has what they print and log for each setting. They wait ten seconds for their stores. */
const everydayStarts = ['invalid keys'];
const triedStarts = sized({ everyday: starts.filter(([name]) => everydayStarts.includes(name)), long: starts });

test.concurrent.each(triedStarts)('%s: the %s process reports the problem without the value', async (_, kind, make) => {
  const { status, said } = await run([MAINS[kind]], { ...newEnvironment(), LOG_LEVEL: 'trace', ...make() });

  expect(status).toBe(1);
  expect(said.length).toBeGreaterThan(20);
  expect(said).not.toContain(CANARY);
});

test.concurrent.each(settings)('%s: a start explains the problem without the value', async (_, make) => {
  let logged = '';
  const destination = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      logged += chunk.toString();
      done();
    },
  });
  const env = { ...newEnvironment(), ...make() };
  const printed = await failureOfStart(env, createLogger({ name: 'test', level: 'trace' }, destination));

  expect(printed).not.toBe('started');
  expect(printed.length).toBeGreaterThan(20);
  expect(printed + logged).not.toContain(CANARY);
});

test.concurrent.each(settings)('%s: no admin command says what', async (name, make) => {
  const env = { ...newEnvironment(), LOG_LEVEL: 'trace', ...make() };
  for (const command of [
    ['doctor', '--json'],
    ['assistant', 'list'],
    ...(name.includes('MongoDB') ? [['operator', 'create', '--email', 'ada@example.com']] : []),
  ]) {
    const { status, stdout, stderr } = await runAdmin(env, command);
    expect([name, command, status]).toEqual([name, command, 1]);
    expect(stdout + stderr).not.toContain(CANARY);
  }
});

const textsIn = (folder: string): string =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((name) => join(folder, name))
    .filter((path) => path.endsWith('.log') && statSync(path).isFile())
    .map((path) => readFileSync(path, 'utf8'))
    .join('\n');

longTest('a wrong Redis password: the quickstart reports the problem without the value', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'quickstart-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const wrong = { REDIS_URL: guarded.url.replace('//', `//:${CANARY}@`) };
  const env = { ...newEnvironment(), LOG_LEVEL: 'trace', LOCAL_DIR: folder, ...wrong };

  const { status, said } = await run(['scripts/quickstart.ts', '--exit'], env);

  expect(status).toBe(1);
  expect(said + textsIn(folder)).not.toContain(CANARY);
});

test('an uncaught error is logged without its payload', async () => {
  const script = (thrown: string) => `
    import { createLifecycle } from './src/platform/process/lifecycle.ts';
    import { createLogger } from './src/platform/process/logger.ts';
    createLifecycle(createLogger({ name: 'x', level: 'info' }), { deadlineMs: 1000 }).listenToProcess();
    ${thrown}`;
  const payloads = [
    `throw Object.assign(new Error('AUTH failed'), { command: { name: 'auth', args: ['${CANARY}'] } });`,
    `Promise.reject(Object.assign(new Error('outer'), { cause: Object.assign(new Error('x'), { body: '${CANARY}' }) }));`,
    ...sized({ everyday: [], long: [`throw '${CANARY}';`, `Promise.reject({ password: '${CANARY}' });`] }),
  ];
  const endings = await Promise.all(payloads.map((thrown) => run(['--input-type=module', '-e', script(thrown)], {})));
  for (const { status, said } of endings) {
    expect(status).toBe(1);
    expect(said).toMatch(/uncaught exception|unhandled rejection/);
    expect(said).not.toContain(CANARY);
  }
});

const failing = (work: () => unknown): unknown => {
  try {
    return work();
  } catch (cause) {
    return cause;
  }
};

const errors: [string, () => unknown][] = [
  ['JSON that is none', () => failing(() => JSON.parse(`${CANARY} "${CANARY}" ${CANARY}`))],
  ['a wrong argument', () => failing(() => Buffer.from(Object.assign(() => undefined, { name: CANARY }) as never))],
  ['a wrong address', () => failing(() => new URL(`no url ${CANARY}`))],
  [
    'an issue with its input',
    () => z.object({ a: z.string() }).safeParse({ a: [CANARY] }, { reportInput: true }).error,
  ],
  ['a key that is too much', () => z.strictObject({}).safeParse({ [`${CANARY} x`]: 1 }).error],
  ['a duplicate', () => new Error(`E11000 duplicate key error collection: x dup key: { email: "${CANARY}" }`)],
  ['a value that cannot be cast', () => new Error(`Cast to Number failed for value "${CANARY}" (type string)`)],
  ['a command Redis does not know', () => new Error(`ERR unknown command 'X', with args beginning with: '${CANARY}'`)],
  ['a command', () => Object.assign(new Error('NOAUTH'), { command: { name: 'hello', args: ['3', CANARY] } })],
  ['an answer', () => Object.assign(new Error('failed'), { response: { body: CANARY }, headers: { a: CANARY } })],
  ['a code', () => Object.assign(new Error('failed'), { code: `${CANARY} ${CANARY}`, name: `${CANARY} x` })],
  ['a cause', () => new Error('outer', { cause: new Error(`got "${CANARY}"`, { cause: { text: CANARY } }) })],
  [
    'several',
    () => new AggregateError([new Error(`https://u:${CANARY}@x.example?key=${CANARY}`)], `all '${CANARY} x'`),
  ],
  ['a stack', () => Object.assign(new Error('x'), { stack: `Error: x\n    at ${CANARY}\n  at (${CANARY}:1:2)` })],
  ['a bearer', () => new Error(`Bearer ${CANARY} was refused, as were sk_${CANARY} and whsec_${CANARY}`)],
];

test.each(errors)('an error with %s is logged with its safe fields only', (_, make) => {
  const error = make();

  expect(error).toBeInstanceOf(Error);
  expect(JSON.stringify(toLoggable(error))).not.toContain(CANARY);
  expect(describeFailure(error)).not.toContain(CANARY);
});

test.each([
  ['EMBEDDINGS_KEY', CANARY],
  ['METRICS_TOKEN', CANARY],
  ['ENCRYPTION_KEY', CANARY],
  ['OTEL_EXPORTER_OTLP_ENDPOINT', `https://parley:${CANARY}@collector.example`],
  ['OTEL_EXPORTER_OTLP_HEADERS', `a=b,x-api-key=${CANARY}`],
])('the value of %s is removed from errors', (name, value) => {
  const error = new Error(`the service refused ${CANARY} today`);

  expect(JSON.stringify(toLoggable(error, secretsIn({ [name]: value })))).not.toContain(CANARY);
});

test('the safe fields are kept: kind, code, message, place and cause', () => {
  const cause = Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:6379'), { code: 'ECONNREFUSED' });
  const told = toLoggable(new TypeError("Cannot read properties of undefined (reading 'seq')", { cause }));

  expect(told).toMatchObject({
    type: 'TypeError',
    message: "Cannot read properties of undefined (reading 'seq')",
    stack: expect.stringContaining('log-canary.process.test.ts'),
    cause: { type: 'Error', message: 'connect ECONNREFUSED 127.0.0.1:6379', code: 'ECONNREFUSED' },
  });
});
