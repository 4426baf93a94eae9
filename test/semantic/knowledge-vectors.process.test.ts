import { expect, test } from 'vitest';
import { anEntry } from '../support/builders.ts';
import { anEmbedder } from '../support/embedder.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { anAssistantWithVectors, someEntries } from '../support/assistant-with-vectors.ts';
import { useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const embedder = anEmbedder();
const stack = useStack({ embedder: () => embedder, timing: { sweepEveryMs: 500 } });

/** Makes the embedder hold a call with this text until `letGo` is called. `reached` resolves when the call begins. */
const hold = (text: string) => {
  const held = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  embedder.gate = (texts) => {
    if (!texts.includes(text)) return;
    reached.resolve();
    return held.promise;
  };
  return { reached: reached.promise, letGo: held.resolve };
};

const jobsWorkedOff = (): Promise<number> =>
  stack.service.redis.zcard(`{${stack.env.REDIS_PREFIX}-0}:knowledge:completed`);

test('entries added by the API get a labelled vector for the question, for each variant and for the answer', async () => {
  const owner = await anOperator(stack);
  const knower = await anAssistantWithVectors(stack, []);
  const path = `/assistants/${knower.assistantId}/knowledge`;

  await owner.post(path, {
    question: 'Can I bring my dog?',
    answer: 'Dogs are welcome.',
    variants: ['Pets?', 'Animals?'],
  });
  await owner.post(`${path}-import`, { format: 'csv', text: 'question,answer\nIs there parking?,Behind the house.\n' });

  const made = await knower.waitForVectors();
  expect(made).toEqual(await knower.expected());
  expect([...made.values()].map((said) => said.map(({ kind }) => kind).join(' ')).toSorted()).toEqual([
    'question answer',
    'question variant variant answer',
  ]);
  expect(await knower.readRows()).toMatchObject([{ model: 'trigrams-1' }, { model: 'trigrams-1' }]);
  const { body } = await owner.get(`${path}-status`);
  expect(body).toEqual({
    state: 'ready',
    reason: null,
    model: 'trigrams-1',
    done: 2,
    total: 2,
    leftOut: 0,
    vectorsLeftOut: [],
  });
});

test('an edit makes vectors only for the changed texts', async () => {
  const owner = await anOperator(stack);
  const knower = await anAssistantWithVectors(stack, someEntries(3, 'edited'));
  await knower.waitForVectors();
  const [entry] = await knower.entries();
  const path = `/assistants/${knower.assistantId}/knowledge/${entry?.entryId}`;
  const write = async (change: object) => {
    const before = embedder.texts.length;
    await owner.call('PUT', path, anEntry({ ...entry, ...change }));
    expect(await knower.waitForVectors()).toEqual(await knower.expected());
    return embedder.texts.slice(before);
  };

  expect(await write({ tags: ['new tag'], language: null })).toEqual([]);
  expect(await write({ variants: ['I look for edited 0', 'quite another wording'] })).toEqual([
    'quite another wording',
  ]);
  expect(await write({ answer: 'It was moved.' })).toEqual(['Where is the edited number 0? It was moved.']);
});

test('an entry is embedded as its question with the start of a long answer, cut between two words', async () => {
  const answer = 'Word after word it goes on. '.repeat(100).trim();
  const knower = await anAssistantWithVectors(stack, [anEntry({ question: 'Is it long?', answer })]);

  await knower.waitForVectors();

  const said = embedder.texts.find((text) => text.startsWith('Is it long? Word')) ?? '';
  const beginning = said.slice('Is it long? '.length);
  expect(answer.startsWith(beginning)).toBe(true);
  expect(beginning.length).toBeGreaterThan(240);
  expect(beginning.length).toBeLessThanOrEqual(300);
  expect(answer[beginning.length]).toBe(' ');
});

test('vectors are removed with their entry, and a replacing import keeps those of unchanged texts', async () => {
  const knower = await anAssistantWithVectors(stack, someEntries(30, 'kept'));
  await knower.waitForVectors();
  const { assistants } = stack.service;
  const before = await knower.entries();

  await assistants.removeKnowledge(knower.assistantId, [before[0]?.entryId ?? '']);
  expect(await knower.readRows()).toHaveLength(29);
  await knower.waitForVectors();

  const asked = embedder.texts.length;
  await assistants.addKnowledge(knower.assistantId, someEntries(31, 'kept'), { replace: true });

  expect(await knower.waitForVectors()).toEqual(await knower.expected());
  // Only two entries get new vectors: the 31st, which is new, and the first, because it was removed before.
  expect(embedder.texts.slice(asked).toSorted()).toEqual(
    [...someEntries(1, 'kept'), ...someEntries(31, 'kept').slice(30)]
      .flatMap(({ question, variants, answer }) => [question, ...variants, `${question} ${answer}`])
      .toSorted(),
  );
  expect(await knower.readRows()).toHaveLength(31);
  const left = await stack.service.mongo
    .collection('knowledgeVectors')
    .countDocuments({ assistantId: knower.assistantId, live: false });
  expect(left).toBe(0);
});

test('an entry edited while its vector is made gets the vector of the new text', async () => {
  const knower = await anAssistantWithVectors(stack, someEntries(2, 'raced'));
  await knower.waitForVectors();
  const [entry] = await knower.entries();
  if (!entry) throw new Error('no entry');
  const { entryId, ...input } = entry;
  const { reached, letGo } = hold('the first change');

  await stack.service.assistants.updateKnowledge(knower.assistantId, entryId, {
    ...input,
    question: 'the first change',
  });
  await reached;
  const workedOff = await jobsWorkedOff();
  await stack.service.assistants.updateKnowledge(knower.assistantId, entryId, {
    ...input,
    question: 'the second change',
  });
  // The wake-up of the second change arrives while the worker is still busy with the first change.
  await eventually(async () => expect(await jobsWorkedOff()).toBeGreaterThan(workedOff));
  letGo();

  expect(await knower.waitForVectors()).toEqual(await knower.expected());
});

test('an entry removed while its vector is made leaves no vector', async () => {
  const knower = await anAssistantWithVectors(stack, someEntries(2, 'gone'));
  await knower.waitForVectors();
  const { reached, letGo } = hold('soon removed');

  const [added] = await stack.service.assistants.addKnowledge(knower.assistantId, [
    anEntry({ question: 'soon removed' }),
  ]);
  await reached;
  await stack.service.assistants.removeKnowledge(knower.assistantId, [added?.entryId ?? '']);
  letGo();

  await knower.waitForVectors();
  expect((await knower.readRows()).map(({ _id }) => _id)).not.toContain(added?.entryId);
  expect(await knower.readRows()).toHaveLength(2);
});

test('the API shows how many entries are ready, an edited entry is embedded first, and answers come last', async () => {
  const owner = await anOperator(stack);
  const knower = await anAssistantWithVectors(stack, [
    anEntry({ question: 'An old question', answer: 'An old answer' }),
  ]);
  await knower.waitForVectors();
  const [old] = await knower.entries();
  const { assistants } = stack.service;
  const asked = embedder.texts.length;
  const first = hold('Where is the slow number 20?');
  embedder.msEach = 5;
  await assistants.addKnowledge(knower.assistantId, someEntries(60, 'slow'));
  await first.reached;

  const { body } = await owner.get<{ state: string; done: number; total: number }>(
    `/assistants/${knower.assistantId}/knowledge-status`,
  );
  await assistants.updateKnowledge(knower.assistantId, old?.entryId ?? '', anEntry({ question: 'An edited question' }));
  const last = hold('Where is the slow number 59? The slow 59 is on its shelf.');
  first.letGo();
  await last.reached;

  expect(body).toMatchObject({ state: 'making', total: 61 });
  expect(body.done).toBeLessThan(61);
  await eventually(async () => expect(await knower.status()).toMatchObject({ state: 'ready', done: 61, total: 61 }));
  const order = embedder.texts.slice(asked);
  expect(order.indexOf('An edited question')).toBeLessThan(order.indexOf('Where is the slow number 59?'));
  expect(order.indexOf('I look for slow 59')).toBeLessThan(
    order.indexOf('Where is the slow number 0? The slow 0 is on its shelf.'),
  );
  embedder.msEach = 0;
  last.letGo();
  expect(await knower.waitForVectors()).toEqual(await knower.expected());
});

test('work waits for an unavailable embedder, and the status shows the cause', async () => {
  const owner = await anOperator(stack);
  embedder.set({ available: false });
  const knower = await anAssistantWithVectors(stack, someEntries(5, 'later'));
  const read = async () => (await owner.get(`/assistants/${knower.assistantId}/knowledge-status`)).body;

  await eventually(async () =>
    expect(await read()).toEqual({
      state: 'off',
      reason: 'its file is damaged',
      model: null,
      done: 0,
      total: 5,
      leftOut: 0,
      vectorsLeftOut: [],
    }),
  );
  embedder.set({ available: true });

  expect(await knower.waitForVectors()).toEqual(await knower.expected());
});

test('a change is embedded at once, without waiting for the next sweep', async () => {
  const knower = await anAssistantWithVectors(stack, someEntries(1, 'woken'));
  await knower.waitForVectors();
  const [entry] = await knower.entries();
  const times: number[] = [];

  for (const question of ['one?', 'two?', 'three?', 'four?']) {
    const startedAt = performance.now();
    await stack.service.assistants.updateKnowledge(knower.assistantId, entry?.entryId ?? '', anEntry({ question }));
    await knower.waitForVectors();
    times.push(performance.now() - startedAt);
  }

  // Sweeps are at least 750 ms apart, so the fastest change did not wait for a sweep.
  expect(Math.min(...times)).toBeLessThan(atPace(600));
});

test('assistants with a text that the embedder refuses do not keep the sweep from others', async () => {
  embedder.refuse = (texts) => texts.includes('a text of doom');
  const poisoned = [];
  // More than are updated at the same time.
  for (let nth = 0; nth < 20; nth += 1)
    poisoned.push(await anAssistantWithVectors(stack, [anEntry({ question: 'a text of doom' })]));
  const other = await anAssistantWithVectors(stack, someEntries(1, 'harmless'));
  await other.waitForVectors();
  for (const one of poisoned) await eventually(async () => expect((await one.status()).state).toBe('making'));

  // No job names it, so that only a sweep can find it.
  await stack.service.assistants.semantic.markStale(other.assistantId);

  await other.waitForVectors(20_000);
  embedder.refuse = () => false;
});

test('a text that the embedder refuses does not affect other entries', async () => {
  embedder.refuse = (texts) => texts.includes('a text of doom');
  const knower = await anAssistantWithVectors(stack, [
    anEntry({ question: 'a text of doom' }),
    ...someEntries(30, 'harmless'),
  ]);

  await eventually(async () => expect(await knower.status()).toMatchObject({ state: 'making', total: 31 }));
  await eventually(async () => {
    const found = (await knower.readRows()).flatMap(({ texts }) => texts).filter((name) => name.startsWith('answer'));
    expect(found).toHaveLength(30);
  });

  embedder.refuse = () => false;
  expect(await knower.waitForVectors()).toEqual(await knower.expected());
});
