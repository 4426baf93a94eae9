import { Resolver } from 'node:dns/promises';
import { readFileSync } from 'node:fs';
import { type AddressInfo, createServer, isIP } from 'node:net';
import { MockAgent } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createRandom, type Random } from '../test/kit/random.ts';
import { TIMING } from '../src/platform/process/time-limits.ts';
import { checkEndpoint, openGuardedAgent } from '../src/platform/http/address-guard.ts';
import { anAssistant, aTurn } from '../test/support/builders.ts';
import { eventually } from '../test/support/eventually.ts';
import { anOperator } from '../test/support/operator-client.ts';
import { QUICK } from '../test/support/source-reading.ts';
import { useStack } from '../test/support/stack.ts';
import { createFetcher, createHosts } from '../src/sources/fetch.ts';
import { often, record, seed } from '../test/kit/fuzz-part.ts';

// Every door that takes an address, every form that leads where it must not. test/events/address-guard.test.ts sends
// to the same forms.

type Form = { name: string; url: string; answers?: string[]; later?: string[]; reach: boolean; reason?: string };
const FORMS = JSON.parse(readFileSync(new URL('../test/support/ssrf-cases.json', import.meta.url), 'utf8')) as Form[];

/** `npm test` tries each door with a part of the forms, each with another part, and `npm run fuzz` with all of them. */
const EVERY = often({ short: 12, whole: 1 });
const someOf = (forms: Form[], nth: number, every = EVERY): Form[] => forms.filter((_, at) => (at + nth) % every === 0);

/** Some doors trim what they get. */
const isTrimmed = ({ name }: Form): boolean => name === 'a leading space';
const ASTRAY = FORMS.filter((form) => !form.reach && !isTrimmed(form));

const stack = useStack({ env: { WEBHOOK_ALLOW_PRIVATE: 'false' }, deliveryWorkers: 0 });

/** What the name server answers. The service asks it for public names only. */
let answers: string[] = [];
const asked = { resolve4: Resolver.prototype.resolve4, resolve6: Resolver.prototype.resolve6 };
const answerFor = (family: number) => async (): Promise<string[]> => {
  const found = answers.filter((ip) => (isIP(ip) === 6 ? 6 : 4) === family);
  if (found.length === 0) throw new Error('no such name');
  return found;
};

/** Whoever is reached on this machine comes here: the forms of loopback lead to it, and the proxy of the environment. */
let reached = 0;
const trap = createServer((socket) => {
  reached += 1;
  socket.destroy();
});
let port = 0;
const SITE = 'https://shop.example';
const PROXIES = ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'http_proxy', 'https_proxy', 'NODE_USE_ENV_PROXY'];

beforeAll(async () => {
  await new Promise<void>((resolve) => trap.listen(0, '127.0.0.1', resolve));
  ({ port } = trap.address() as AddressInfo);
  Object.assign(Resolver.prototype, { resolve4: answerFor(4), resolve6: answerFor(6) });
  for (const name of PROXIES) process.env[name] = `http://127.0.0.1:${port}`;
});
afterAll(() => {
  Object.assign(Resolver.prototype, asked);
  for (const name of PROXIES) delete process.env[name];
  trap.close();
});
const urlOf = ({ url }: Form): string => url.replace('{port}', String(port));

type Door = {
  name: string;
  give: (url: string) => Promise<{ status: number; headers: Headers; body: unknown }>;
  /** What this door takes though others do not, and the other way round. */
  takes?: (form: Form) => boolean;
  refuses?: (form: Form) => boolean;
};

const openDoors = async (): Promise<Door[]> => {
  const owner = await anOperator(stack);
  const { assistantId } = await anAssistant(stack);
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: 'https://93.184.215.14/' });
  const path = `/assistants/${assistantId}`;
  const lines = (engine: object): string =>
    [
      { kind: 'header', format: 1, assistant: { assistantId, name: 'x' }, exportedAt: new Date() },
      { kind: 'settings', settings: {}, engine, web: {} },
      { kind: 'end', lines: { entry: 0 } },
    ]
      .map((line) => `${JSON.stringify(line)}\n`)
      .join('');
  const provider = (baseUrl: string) => ({ kind: 'openai', baseUrl, model: 'm' });
  const hasParts = ({ url }: Form): boolean => /[?#]/.test(url);
  return [
    {
      name: 'a new endpoint',
      give: async (url) => {
        const made = await owner.post<{ endpoint?: { endpointId: string } }>(`${path}/endpoints`, { url });
        if (made.body.endpoint) await owner.call('DELETE', `/endpoints/${made.body.endpoint.endpointId}`);
        return made;
      },
    },
    { name: 'an endpoint', give: (url) => owner.call('PATCH', `/endpoints/${endpoint.endpointId}`, { url }) },
    {
      name: 'a provider',
      give: (url) => owner.call('PUT', `${path}/engine`, provider(url)),
      takes: isTrimmed,
      refuses: hasParts,
    },
    {
      name: 'a provider in a file',
      give: (url) =>
        owner.call('POST', `${path}/import`, lines(provider(url)), { 'Content-Type': 'application/x-ndjson' }),
      takes: isTrimmed,
      refuses: hasParts,
    },
    {
      name: 'a page',
      give: async (url) => {
        const made = await owner.post<{ sourceId?: string }>(`${path}/sources`, { kind: 'page', url });
        if (made.body.sourceId) await owner.call('DELETE', `${path}/sources/${made.body.sourceId}`);
        return made;
      },
      takes: (form) => form.url.startsWith('http:') || isTrimmed(form),
    },
  ];
};

test('every door refuses every form that leads where it must not, and takes the others', async () => {
  const doors = await openDoors();
  const wrong: string[] = [];
  let tries = 0;
  for (const [nth, { name, give, takes, refuses }] of doors.entries())
    for (const form of someOf(FORMS, nth)) {
      tries += 1;
      answers = form.answers ?? [];
      const { reason } = form;
      // A name that leads nowhere now is taken, and checked at each use, as is one that leads elsewhere later.
      const isLater = form.later !== undefined || reason === 'unresolved';
      const isTaken = (form.reach || isLater || takes?.(form) === true) && refuses?.(form) !== true;
      const answer = await give(urlOf(form));
      const isRight = isTaken ? answer.status < 300 : answer.status === 422;
      if (!isRight) wrong.push(`${name}, ${form.name}: ${answer.status} ${JSON.stringify(answer.body)}`);
    }

  expect(wrong).toEqual([]);
  expect(reached).toBe(0);
  expect(FORMS.length).toBeGreaterThan(200);
  record('addresses', { doors: doors.length, forms: FORMS.length, tries });
});

test('a provider that a record leads astray is not asked', async () => {
  const wrong: string[] = [];
  // Each needs an assistant and a turn.
  const tried = someOf(ASTRAY, 0, 2 * EVERY);
  for (const form of tried) {
    // A worker remembers an assistant, and that its provider failed.
    const { assistantId, chat } = await anAssistant(stack);
    const { later = form.answers ?? [] } = form;
    answers = later;
    const baseUrl = urlOf(form);
    const stored = { kind: 'openai' as const, baseUrl, model: 'm', timeoutMs: 2_000 };
    const isStored = await stack.service.assistants.setEngine(assistantId, stored).then(
      () => true,
      () => false, // what is no URL is never stored
    );
    if (!isStored) continue;
    const { status, body } = await chat(aTurn());
    const why = await eventually(() => {
      const line = stack.logs.findLast((one) => one['conversationId'] === body.conversationId && 'why' in one);
      return (line as { why: { fallBack?: { because: string } } }).why;
    });
    const because = why.fallBack?.because ?? '';
    if (status !== 200 || !['address_refused', 'connection'].includes(because)) wrong.push(`${form.name}: ${because}`);
  }

  expect(wrong).toEqual([]);
  expect(reached).toBe(0);
  expect(tried.length).toBeGreaterThan(150 / (2 * EVERY));
});

test('a page that leads astray is not followed', async () => {
  const guarded = openGuardedAgent({ allowPrivate: false, connections: 1 });
  const site = new MockAgent();
  site.disableNetConnect();
  const agent = guarded.compose(
    (dispatch) => (options, handler) => (options.origin === SITE ? site : { dispatch }).dispatch(options, handler),
  );
  const timing = { ...TIMING, ...QUICK, sourceRequestEveryMs: 1 };
  const hosts = createHosts(stack.service.redis, stack.env['REDIS_PREFIX'] ?? '', timing);
  const fetchPage = createFetcher({ dispatcher: agent, hosts, allowPrivate: false, timing });
  const { signal } = new AbortController();
  const wrong: string[] = [];
  const leading = ASTRAY.filter(({ url }) => /^https:[\x20-\x7e]+$/.test(url));
  const tried = someOf(leading, 1, often({ short: 4, whole: 1 }));
  for (const form of tried) {
    const { later = form.answers ?? [] } = form;
    answers = later;
    const headers = { location: urlOf(form) };
    site.get(SITE).intercept({ path: '/' }).reply(302, '', { headers });
    const options = { assistantId: 'one', maxBytes: 1_000, accept: 'text/html', everyMs: () => 1, signal };
    const answer = await fetchPage(`${SITE}/`, options);
    const kind = form.reason === 'unresolved' ? 'failed' : 'refused';
    if (answer.kind !== kind) wrong.push(`${form.name}: ${JSON.stringify(answer)}`);
  }
  await Promise.all([site.close(), guarded.close()]);

  expect(wrong).toEqual([]);
  expect(reached).toBe(0);
  expect(leading.length).toBeGreaterThan(150);
});

const PRIVATE_V4 = [
  [10],
  [127],
  [0],
  [169, 254],
  [172, 16],
  [192, 168],
  [100, 64],
  [192, 0, 2],
  [198, 18],
  [224],
  [255],
];
const hex4 = (bytes: number[]): string[] =>
  [0, 2].map((at) => (((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0)).toString(16));
const NUMERALS = [
  (value: number) => String(value),
  (value: number) => `0x${value.toString(16)}`,
  (value: number) => `0X${value.toString(16).toUpperCase().padStart(9, '0')}`,
  (value: number) => `0${value.toString(8)}`,
  (value: number) => `0000${value.toString(8)}`,
];
const DISGUISES = [
  (text: string) => text,
  (text: string) => text.replace(/\d/g, (one) => String.fromCodePoint(0xff10 + Number(one))),
  (text: string) => text.replace(/\d/g, (one) => String.fromCodePoint(0x1d7ce + Number(one))),
  (text: string) => text.replace(/./g, (one) => `%${(one.codePointAt(0) ?? 0).toString(16)}`),
  (text: string) => text.replace(/\./g, '。'),
  (text: string) => text.replace(/\./g, '．'),
  (text: string) => text.replace(/./g, (one) => `${one}\u00ad`),
  (text: string) => text.toUpperCase(),
];

/** A private address, spelled as a browser would understand it. */
const spell = ({ below, next }: Random): string => {
  const one = <Value>(all: Value[]): Value => all[below(all.length)] as Value;
  const bytes = [...one(PRIVATE_V4)];
  while (bytes.length < 4) bytes.push(below(256));
  if (next() < 0.35) {
    const prefix = one([
      '::ffff:',
      '0:0:0:0:0:ffff:',
      '::',
      '64:ff9b::',
      '64:ff9b:1::',
      '2002:',
      '::ffff:0:',
      'fe80::',
      'fd00::',
    ]);
    const tail =
      prefix === '2002:' ? `${hex4(bytes).join(':')}::` : next() < 0.5 ? hex4(bytes).join(':') : bytes.join('.');
    const address = `[${prefix}${tail}]`;
    return next() < 0.5 ? address : address.toUpperCase();
  }
  if (next() < 0.1) return one(DISGUISES)(one(['localhost', 'a.localhost', 'localhost.']));
  // The last part of a short form holds all bytes that are left.
  const whole = 1 + below(4);
  const parts = bytes.slice(0, whole - 1).map((byte) => one(NUMERALS)(byte));
  const rest = bytes.slice(whole - 1).reduce((sum, byte) => sum * 256 + byte, 0);
  return one(DISGUISES)([...parts, one(NUMERALS)(rest)].join('.') + one(['', '', '.']));
};

test('a private address is recognised in any spelling', async () => {
  const random = createRandom(seed);
  const count = often({ short: 2_000, whole: 200_000 });
  answers = ['93.184.215.14'];
  const taken = new Set<string>();
  for (let nth = 0; nth < count; nth += 1) {
    const url = `https://${spell(random)}/`;
    const checked = await checkEndpoint(url, { allowPrivate: false });
    if (checked.ok) taken.add(url);
  }

  expect([...taken]).toEqual([]);
  record('spellings', { spellings: count });
});
