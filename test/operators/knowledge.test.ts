import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { anAssistant, anEntry, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { useOpened, useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const stack = useStack();
const owner = useOpened(() => anOperator(stack));

type Entries = { entries: { question: string }[] };
type Conflicts = { conflicts: { entryIds: string[]; questions: string[]; likeness: number }[] };

const knowing = async (...knowledge: ReturnType<typeof anEntry>[]) => {
  const { assistantId } = await anAssistant(stack, { knowledge });
  return { owner, path: `/assistants/${assistantId}/knowledge` };
};

test('a search finds entries that contain all of its words, ignoring case and accents', async () => {
  const { owner, path } = await knowing(
    anEntry({ question: 'Do you ship abroad?', answer: 'To all of Europe.' }),
    anEntry({ question: 'Où est le café ?', variants: ['Where is the coffee bar?'], answer: 'Rue Cler.' }),
    anEntry({ question: 'What does shipping cost?', answer: 'Five euros.', tags: ['price'] }),
  );
  const found = async (search: string) =>
    (await owner.get<Entries>(`${path}?search=${encodeURIComponent(search)}`)).body.entries.map(
      ({ question }) => question,
    );

  expect(await found('SHIP')).toEqual(['Do you ship abroad?', 'What does shipping cost?']);
  expect(await found('europe ship')).toEqual(['Do you ship abroad?']);
  expect(await found('CAFE')).toEqual(['Où est le café ?']);
  expect(await found('bar coffee')).toEqual(['Où est le café ?']);
  expect(await found('price')).toEqual(['What does shipping cost?']);
  expect(await found('.*')).toEqual([]);
  expect(problemOf(await owner.get(`${path}?search=%20`))).toBe('422 validation_failed search');
});

test('only entries with similar questions and different answers are conflicts', async () => {
  const { owner, path } = await knowing(
    anEntry({ question: 'What are your opening hours?', answer: 'From 9 to 5.' }),
    anEntry({ question: 'When do you close?', variants: ['What are the OPENING hours'], answer: 'At 6.' }),
    anEntry({ question: 'What are your opening hours on Sunday?', answer: 'Closed.' }),
    anEntry({ question: 'What are your opening hours on Saturday?', answer: 'From 9 to 4.' }),
    anEntry({ question: 'Do you ship to France?', answer: 'Yes.' }),
    anEntry({ question: 'Do you ship to Norway?', answer: 'No.' }),
    anEntry({ question: 'Do you sell tea?', answer: 'Yes, we do.' }),
    anEntry({ question: 'do you sell tea', answer: 'yes - we do' }),
    anEntry({ question: 'Hat der Laden einen Parkplatz?', answer: 'Ja.', language: 'de' }),
    anEntry({ question: 'Hat der Laden einen Parkplatz?', answer: 'Nee.', language: 'nl' }),
  );

  const { body } = await owner.get<Conflicts>(`${path}-conflicts`);

  expect(body.conflicts.map(({ questions, likeness }) => ({ questions, likeness }))).toEqual([
    { questions: ['What are your opening hours?', 'What are the OPENING hours'], likeness: 1 },
  ]);
  expect(problemOf(await owner.get(`/assistants/${randomUUID()}/knowledge-conflicts`))).toBe('404 not_found');
  const [first] = body.conflicts[0]?.entryIds ?? [];
  await owner.call('PUT', `${path}/${first}`, anEntry({ question: 'Who roasts the beans?', answer: 'Ada does.' }));
  expect((await owner.get<Conflicts>(`${path}-conflicts`)).body).toEqual({ conflicts: [] });
});

test('an updated key stays the same key, and a revoked key cannot be updated', async () => {
  const { assistantId, keyId, chat } = await anAssistant(stack);
  const list = async () =>
    (await owner.get<{ keys: { name: string; limitPerMinute: number }[] }>(`/assistants/${assistantId}/keys`)).body
      .keys;

  const renamed = await owner.call('PATCH', `/keys/${keyId}`, { name: 'shop window' });
  const limited = await owner.call('PATCH', `/keys/${keyId}`, { limitPerMinute: 2 });
  const wrong = await owner.call('PATCH', `/keys/${keyId}`, { limitPerMinute: 0 });

  expect(renamed.body).toMatchObject({ keyId, name: 'shop window', limitPerMinute: 1_000_000 });
  expect(limited.body).toMatchObject({ keyId, name: 'shop window', limitPerMinute: 2 });
  expect(problemOf(wrong)).toBe('422 validation_failed limitPerMinute');
  expect(await list()).toMatchObject([{ name: 'shop window', limitPerMinute: 2 }]);
  await eventually(async () => expect((await chat(aTurn())).headers.get('x-ratelimit-limit')).toBe('2'));
  await owner.post(`/keys/${keyId}/revoke`);
  expect(problemOf(await owner.call('PATCH', `/keys/${keyId}`, { name: 'again' }))).toBe('404 not_found');
  const trail = await owner.get(`/audit?target=${keyId}&action=key.update`);
  expect(trail.body).toMatchObject({
    lines: [{ details: { name: 'shop window', limitPerMinute: 2 } }, { details: { name: 'shop window' } }],
  });
});

test.each([
  ['answer differently', (nth: number) => `Number ${nth}. `, 100],
  ['answer the same', () => '', 0],
])(
  'a search for conflicts is quick for very many entries with the same question that %s',
  async (_name, begin, told) => {
    const answer = (nth: number) => `${begin(nth)}${'It depends on the weight and on where it goes. '.repeat(12)}`;
    const entries = Array.from({ length: 1_000 }, (_, nth) =>
      anEntry({ question: 'What does it cost?', answer: answer(nth) }),
    );
    const { owner, path } = await knowing(...entries);

    const startedAt = performance.now();
    const { body } = await owner.get<Conflicts>(`${path}-conflicts`);

    expect(body.conflicts).toHaveLength(told);
    expect(performance.now() - startedAt).toBeLessThan(atPace(2_000));
  },
);
