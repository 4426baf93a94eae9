import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { adminJson, adminOf, runAdmin, spawnAdmin, useAdmin } from '../support/admin.ts';
import { anEmbedder } from '../support/embedder.ts';
import { anAssistantWithVectors, someEntries } from '../support/assistant-with-vectors.ts';
import { openStack, useStack } from '../support/stack.ts';

const embedder = anEmbedder();
const stack = useStack({ embedder: () => embedder });
const command = useAdmin(stack);

const aFile = (count: number): string => {
  const file = join(mkdtempSync(join(tmpdir(), 'knowledge-')), 'faq.json');
  writeFileSync(file, JSON.stringify(someEntries(count, 'file')));
  return file;
};

test('an import shows how many of its entries have vectors, and ends when all have', async () => {
  const knower = await anAssistantWithVectors(stack, []);
  embedder.msEach = 10;

  const { status, stdout, stderr } = await spawnAdmin(command, [
    'knowledge',
    'import',
    '--assistant',
    knower.assistantId,
    aFile(100),
  ]);

  embedder.msEach = 0;
  expect([status, stdout]).toEqual([0, '100 imported, 0 refused.\nSemantic search: ready\n']);
  expect(stderr).toMatch(/^(Semantic search: \d+ of 100 entries ready\n)+$/);
  expect((await knower.status()).state).toBe('ready');
});

test('for a program, or with --no-wait, an import ends once the entries are stored, and status shows the progress', async () => {
  const knower = await anAssistantWithVectors(stack, []);
  const held = Promise.withResolvers<void>();
  embedder.gate = () => held.promise;
  const words = ['knowledge', 'import', '--assistant', knower.assistantId, aFile(3)];

  const told = await adminJson(command, ...words);
  const { stdout } = await runAdmin(command, [...words, '--no-wait']);
  const making = await adminJson(command, 'knowledge', 'status', '--assistant', knower.assistantId);
  const list = await runAdmin(command, ['knowledge', 'list', '--assistant', knower.assistantId]);
  embedder.gate = () => undefined;
  held.resolve();
  await knower.waitForVectors();
  const ready = await adminJson(command, 'knowledge', 'status', '--assistant', knower.assistantId);

  expect(told).toEqual({ imported: 3, refused: [] });
  expect(stdout).toBe('3 imported, 0 refused.\nSemantic search: 0 of 6 entries ready\n');
  expect(making).toEqual({
    state: 'making',
    reason: null,
    model: 'trigrams-1',
    done: 0,
    total: 6,
    leftOut: 0,
    vectorsLeftOut: [],
  });
  expect(list.stdout).toMatch(/\n\nSemantic search: 0 of 6 entries ready\n$/);
  expect(ready).toEqual({
    state: 'ready',
    reason: null,
    model: 'trigrams-1',
    done: 6,
    total: 6,
    leftOut: 0,
    vectorsLeftOut: [],
  });
});

test('if no vectors can be made, the command says why and does not wait', async () => {
  const idle = await openStack({ replyWorkers: 0, deliveryWorkers: 0 });
  const idleCommand = await adminOf(idle);
  const knower = await anAssistantWithVectors(idle, someEntries(2));

  const none = await runAdmin(idleCommand, ['knowledge', 'status', '--assistant', knower.assistantId]);
  await idle.startReplyWorker();
  const off = await runAdmin(idleCommand, ['knowledge', 'import', '--assistant', knower.assistantId, aFile(2)]);
  const unknown = await runAdmin(idleCommand, ['knowledge', 'status', '--assistant', 'nobody']);
  await idle.close();

  expect(none.stdout).toContain('Semantic search is off: no reply worker is running\n');
  expect(off.stdout).toBe('2 imported, 0 refused.\nSemantic search is off: not installed (SEMANTIC_DIR is not set)\n');
  expect([unknown.status, unknown.stderr]).toEqual([1, 'There is no assistant nobody.\n']);
});
