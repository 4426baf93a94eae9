import { randomUUID } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { adminJson, runAdmin, useAdmin } from '../support/admin.ts';
import { anAssistant, anEntry } from '../support/builders.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const env = useAdmin(stack);
const folder = mkdtempSync(join(tmpdir(), 'parley-apply-'));
afterAll(() => rmSync(folder, { recursive: true }));

const aFile = (text: string, name = `${randomUUID()}.yaml`): string => {
  const file = join(folder, name);
  writeFileSync(file, text);
  return file;
};
const run = (file: string, ...more: string[]) => runAdmin(env, ['apply', '-f', file, ...more]);
const idOf = async (name: string) =>
  (await stack.service.assistants.listNames()).filter((one) => one.name === name).map((one) => one.assistantId);
const entriesOf = (assistantId: string) =>
  adminJson<{ entryId: string; question: string; answer: string }[]>(
    env,
    'knowledge',
    'list',
    '--assistant',
    assistantId,
  );

const aShop = (name: string, { refunds = 'Within 30 days.', more = '' } = {}): string => `
name: ${name}
languages: [en, de-at]
guard: refuse
openingHours: null
web: { enabled: true, origins: ["https://shop.example"], greeting: "Hi!" }
knowledge:
  - question: When are you open?
    answer: From 9 to 5.
    tags: [hours]
  - question: Can I send something back?
    answer: ${refunds}
${more}`;

test('a file makes an assistant, shows what differs, changes only that, and then nothing', async () => {
  const name = `Shop ${randomUUID()}`;
  const file = aFile(aShop(name, { more: '  - { question: Do you ship abroad?, answer: To the EU. }' }));

  const before = await run(file, '--dry-run');
  expect(await idOf(name)).toEqual([]);
  const made = await run(file);
  const [assistantId = ''] = await idOf(name);
  const same = await run(file, '--dry-run');

  expect([before.status, made.status, same.status]).toEqual([3, 0, 0]);
  expect(before.stdout.split('\n')).toEqual(
    expect.arrayContaining(['+ assistant', '+ guard: "refuse"', '+ knowledge: "When are you open?"']),
  );
  expect([made.stdout, same.stdout]).toEqual([
    `${before.stdout}Assistant ${assistantId} is as the file says.\n`,
    'Nothing differs.\n',
  ]);
  const assistant = await stack.service.assistants.getAssistant(assistantId);
  expect(assistant).toMatchObject({
    guard: 'refuse',
    languages: ['en', 'de-AT'],
    web: { greeting: 'Hi!', theme: 'auto' },
  });
  const first = await entriesOf(assistantId);
  // What the file does not name stays.
  await stack.service.assistants.updateAssistant(assistantId, { instructions: 'Be brief.' });

  const next = aShop(name, { refunds: 'Within 14 days.', more: '  - { question: Do you repair?, answer: Yes. }' });
  const other = aFile(next.replace('guard: refuse', 'guard: flag').replace('Hi!', 'Hello!'));
  const dry = await run(other, '--dry-run');
  const changed = await run(other);

  expect(dry.stdout.trim().split('\n')).toEqual([
    '~ guard: "refuse" → "flag"',
    '~ web.greeting: "Hi!" → "Hello!"',
    '+ knowledge: "Do you repair?"',
    '~ knowledge: "Can I send something back?"',
    '- knowledge: "Do you ship abroad?"',
  ]);
  expect([dry.status, changed.status, (await run(other, '--dry-run')).status]).toEqual([3, 0, 0]);
  const after = await entriesOf(assistantId);
  expect(after.map(({ question, answer }) => [question, answer])).toEqual([
    ['When are you open?', 'From 9 to 5.'],
    ['Can I send something back?', 'Within 14 days.'],
    ['Do you repair?', 'Yes.'],
  ]);
  expect(after.slice(0, 2).map(({ entryId }) => entryId)).toEqual(first.slice(0, 2).map(({ entryId }) => entryId));
  expect(await stack.service.assistants.getAssistant(assistantId)).toMatchObject({
    guard: 'flag',
    instructions: 'Be brief.',
  });
});

test('an assistant is described as a file that makes another one like it, without its secrets', async () => {
  const name = `Copy ${randomUUID()}`;
  const knowledge = [
    anEntry({ variants: ['Hours?'], actions: [{ label: 'Map', type: 'link', payload: 'https://a.example' }] }),
  ];
  const { assistantId } = await anAssistant(stack, { input: { takeWithinMinutes: 5 }, knowledge });
  const engine = { kind: 'openai' as const, baseUrl: 'http://127.0.0.1:9/v1', model: 'm', apiKey: 'sk-canary' };
  await stack.service.assistants.setEngine(assistantId, engine);

  const described = await runAdmin(env, ['describe', assistantId]);
  const file = aFile(described.stdout.replace(/^name: .*$/m, `name: ${name}`));
  const made = await run(file);
  const [copy = ''] = await idOf(name);
  const again = await runAdmin(env, ['describe', copy]);

  expect([described.status, made.status]).toEqual([0, 0]);
  expect(described.stdout).not.toContain('canary');
  expect(again.stdout.replace(name, 'Test assistant')).toBe(described.stdout);
  expect((await run(file, '--dry-run')).status).toBe(0);
});

test('a provider key comes from the environment, and is set once', async () => {
  const name = `Key ${randomUUID()}`;
  const text = (model: string) =>
    `{ name: ${name}, engine: { kind: openai, baseUrl: "http://127.0.0.1:9/v1", model: ${model}, keyEnv: APPLY_TEST_KEY } }`;
  const without = await run(aFile(text('m')));
  expect(await idOf(name)).toEqual([]);
  process.env['APPLY_TEST_KEY'] = 'sk-canary';
  try {
    const set = await run(aFile(text('m')));
    const same = await run(aFile(text('m')), '--dry-run');
    const other = await run(aFile(text('n')));

    expect([without.status, set.status, same.status, other.status]).toEqual([2, 0, 0, 0]);
    expect(other.stdout).toContain('~ engine: ');
    expect([set, same, other].map(({ stdout, stderr }) => stdout + stderr).join('')).not.toContain('canary');
    const [assistantId = ''] = await idOf(name);
    expect((await stack.service.assistants.getAssistant(assistantId)).engine).toMatchObject({
      kind: 'openai',
      model: 'n',
    });
  } finally {
    delete process.env['APPLY_TEST_KEY'];
  }
});

test.each([
  ['an unknown field', 'name: X\nguards: off', /guards/],
  ['a wrong value', 'name: X\ndedupeWindowSeconds: 601', /dedupeWindowSeconds must be/],
  ['a wrong field of the engine', 'name: X\nengine: { kind: openai, baseUrl: "x", model: m }', /engine\.baseUrl/],
  ['a wrong field of the web channel', 'name: X\nweb: { accent: red }', /web\.accent must be a colour/],
  ['a wrong entry', 'name: X\nknowledge: [{ question: Why? }]', /entry 1: answer is required/],
  ['a file of knowledge that is not there', 'name: X\nknowledge: none.csv', /none\.csv cannot be read/],
  ['no name', 'guard: off', /names no assistant and no name/],
  ['no mapping', '- a', /./],
  ['broken YAML', 'name: X\nlanguages: [en', /line 2 is not valid YAML/],
  [
    'many aliases',
    `a: &a [x]\n${Array.from({ length: 9 }, (_, n) => `b${n}: &b${n} [${`*${n ? `b${n - 1}` : 'a'},`.repeat(10)}]`).join('\n')}`,
    /./,
  ],
])('%s is refused before anything changes', async (_what, text, message) => {
  const count = (await stack.service.assistants.listNames()).length;

  const { status, stderr } = await run(aFile(text));

  expect(status).toBe(1);
  expect(stderr).toMatch(message);
  expect((await stack.service.assistants.listNames()).length).toBe(count);
});

test('of two assistants with one name the id decides, and entries may be in a file of their own', async () => {
  const name = `Twice ${randomUUID()}`;
  const [first] = [await anAssistant(stack, { input: { name } }), await anAssistant(stack, { input: { name } })];
  aFile('question,answer\nWhy?,Because.\n', 'why.csv');

  const unclear = await run(aFile(`name: ${name}`));
  const clear = await run(aFile(`assistant: ${first.assistantId}\nknowledge: why.csv`));
  const unknown = await run(aFile(`assistant: ${randomUUID()}`));

  expect([unclear.status, clear.status, unknown.status]).toEqual([1, 0, 1]);
  expect(unclear.stderr).toContain('give the id of one');
  expect((await entriesOf(first.assistantId)).map(({ answer }) => answer)).toEqual(['Because.']);
});

test('the file that docs/admin.md shows is accepted', async () => {
  const [, shown = ''] = /```yaml\n([^]*?)```/.exec(readFileSync('docs/admin.md', 'utf8')) ?? [];
  aFile('question,answer\nWhy?,Because.\n', 'faq.csv');

  const { status, stdout } = await run(aFile(shown), '--dry-run');

  expect(status).toBe(3);
  for (const [, field] of shown.matchAll(/^(\w+):/gm))
    expect(stdout).toContain(`+ ${field === 'engine' ? 'guard' : field}`);
});
