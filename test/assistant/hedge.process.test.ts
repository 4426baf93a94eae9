import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import type { AssistantInput } from '../../src/assistants/assistant.ts';
import type { SuggestedAction } from '../../src/assistants/suggested-action.ts';
import { anAssistant, anEntry } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import type { missOperations } from '../../src/assistants/knowledge/http.ts';
import { openReceiver } from '../kit/receiver.ts';
import type { AnswerOf } from '../kit/operations.ts';
import { useProjection } from '../support/projection.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { text } from '../../src/replies/engines/engine.ts';

/** Words alone decide: there is no model. */
const stack = useStack({ replyWorkers: 0 });
useProjection(stack);

const DIRECTIONS = { label: 'Countries', type: 'link' as const, payload: '/countries' };
const KNOWLEDGE = [
  anEntry({ question: 'How much does shipping cost?', answer: '3.90 €.' }),
  anEntry({ question: 'Do you ship to other countries?', answer: 'Yes, to Norway.', actions: [DIRECTIONS] }),
  anEntry({ question: 'How do I return an item?', answer: 'By post.' }),
  anEntry({ question: 'Is there parking?', answer: 'Behind the house.' }),
];
/** This question shares words with two entries, more with the one on countries. */
const VAGUE = 'is shipping of an item to a country possible';
const UNKNOWN = 'who won the football match last night';
const NOT_MEANT = { label: 'That is not what I meant', type: 'reply', payload: 'That is not what I meant' };
const PERSON = { label: 'Talk to a person', type: 'escalate', payload: 'user_requested' };

const aShop = async (input: Partial<AssistantInput> = {}) => {
  const assistant = await anAssistant(stack, { knowledge: KNOWLEDGE, input });
  const aVisitor = () => {
    const session_id = randomUUID();
    return async (message: string, language = 'en') => {
      const { body } = await assistant.chat({ session_id, message, language });
      const ended = stack.logs.findLast(
        ({ msg, conversationId }) => msg === 'turn ended' && conversationId === body.conversationId,
      );
      const actions = (body.suggestedActions ?? []) as SuggestedAction[];
      return { ...body, actions, why: ended?.['why'] as Record<string, unknown> };
    };
  };
  return { ...assistant, aVisitor };
};

test('an answer that is not sure comes after a sentence that says so, with the other entries as buttons', async () => {
  const { aVisitor, assistantId } = await aShop();
  const receiver = await openReceiver();
  const events = ['message.sent' as const];
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url, events });

  const { reply, actions, why } = await aVisitor()(VAGUE);

  expect(reply).toBe('This may be what you are looking for:\nYes, to Norway.');
  const other = { label: 'How do I return an item?', type: 'reply', payload: 'How do I return an item?' };
  expect(actions).toEqual([DIRECTIONS, other, NOT_MEANT]);
  expect(why).toMatchObject({ kind: 'hedge', by: 'words', threshold: 0.8, hits: expect.any(Array) });
  await eventually(() => expect(receiver.received).toHaveLength(1));
  expect(receiver.received[0]?.json).toMatchObject({ event: 'message.sent', payload: { content: reply } });
});

test('the sentence and the button are in the visitor’s language, and an answer in another language says that too', async () => {
  const { aVisitor } = await aShop({ threshold: 1 });

  const { reply, actions } = await aVisitor()('Combien coûte la livraison ?', 'fr');

  expect(reply?.split('\n')).toEqual([text('fr', 'hedge'), expect.stringContaining('anglais'), '3.90 €.']);
  expect(actions.at(-1)?.label).toBe(text('fr', 'notMeant'));
});

test.each(sized({ everyday: ['no'], long: ['no', 'That is not what I meant', 'Das habe ich nicht gemeint!'] }))(
  'a visitor who says “%s” is asked for other words and offered a person, and a second miss hands over',
  async (message) => {
    const say = (await aShop()).aVisitor();
    await say(VAGUE);

    const rejected = await say(message);
    const next = await say(UNKNOWN);

    expect(rejected).toMatchObject({ reply: text('en', 'unsure'), actions: [PERSON] });
    expect(rejected.why).toMatchObject({ kind: 'unsure', rejected: true, hits: [] });
    expect(next.reply).toBe(text('en', 'holding'));
  },
);

test('a hedged answer is no miss at once: two in a row hand nothing over, and a "yes" keeps it', async () => {
  const say = (await aShop()).aVisitor();

  const replies = [await say(VAGUE), await say(`${VAGUE} please`), await say('yes')];

  expect(replies.map(({ why }) => why['kind'])).toEqual(['hedge', 'hedge', 'yes']);
});

test('an owner chooses how sure the assistant must be, and a number replaces the choice', async () => {
  const { aVisitor, assistantId } = await aShop();
  const owner = await anOperator(stack);
  const askWith = async (settings: object, threshold: number) => {
    const changed = await owner.call('PATCH', `/assistants/${assistantId}`, settings);
    expect(changed).toMatchObject({ status: 200, body: settings });
    return eventually(async () => {
      const { why } = await aVisitor()('parking fee');
      expect(why).toMatchObject({ threshold });
      return why['kind'];
    });
  };

  const created = await owner.get(`/assistants/${assistantId}`);
  const kinds = [
    await askWith({ answering: 'careful' }, 0.9),
    await askWith({ answering: 'balanced' }, 0.8),
    await askWith({ answering: 'direct' }, 0.7),
    await askWith({ threshold: 0.99 }, 0.99),
  ];
  const refused = await owner.call('PATCH', `/assistants/${assistantId}`, { answering: 'bold' });

  expect(created.body).toMatchObject({ answering: 'balanced', threshold: null });
  expect(kinds).toEqual(['hedge', 'hedge', 'answer', 'hedge']);
  expect(refused).toMatchObject({ status: 422, body: { error: { field: 'answering' } } });
});

test('an assistant of an earlier release is balanced, and keeps its number', async () => {
  const { aVisitor, assistantId } = await aShop({ threshold: 0.6 });
  await stack.service.mongo
    .collection('assistants')
    .updateOne({ _id: assistantId as never }, { $unset: { answering: 1 } });

  const { why } = await aVisitor()(VAGUE);

  expect(why).toMatchObject({ kind: 'answer', threshold: 0.6 });
});

test('a question that no entry is about gets no questions to choose from', async () => {
  const { aVisitor } = await aShop();

  const { reply, actions } = await aVisitor()(UNKNOWN);

  expect(reply).toBe(text('en', 'unsure'));
  expect(actions).toEqual([PERSON]);
});

type Misses = AnswerOf<typeof missOperations.list>['misses'];
const WAIT_MS = 25_000;

test('a question whose hedged answer was not meant is a miss: another entry was chosen, a person, that was said, or nothing', async () => {
  const { aVisitor, assistantId } = await aShop();
  const owner = await anOperator(stack);
  const misses = async () => (await owner.get<{ misses: Misses }>(`/assistants/${assistantId}/misses`)).body.misses;
  const [kept, thanked, chosen, rejected, left] = Array.from({ length: 5 }, aVisitor);
  for (const say of [kept, thanked, chosen, rejected, left]) await say!(VAGUE);
  const { conversationId: alone } = await aVisitor()(VAGUE);
  await aVisitor()(UNKNOWN);
  // The projection has read the hedged answers before the visitors go on.
  await eventually(async () => expect((await misses()).map(({ question }) => question)).toEqual([UNKNOWN]), WAIT_MS);

  await kept!('Do you ship to other countries?');
  await thanked!('thanks');
  const missed = [
    await chosen!('How do I return an item?'),
    await rejected!(NOT_MEANT.payload),
    await left!('I want to talk to a person'),
  ].map(({ conversationId }) => conversationId);
  const examplesAre = (expected: string[]) =>
    eventually(async () => {
      const found = (await misses()).find(({ question }) => question === VAGUE);
      expect(found?.examples.map(({ conversationId }) => conversationId).toSorted()).toEqual(expected.toSorted());
    }, WAIT_MS);

  await examplesAre(missed);
  const pending = stack.service.mongo.collection('pendingMisses');
  await eventually(async () => expect(await pending.countDocuments({ assistantId })).toBe(1), WAIT_MS);
  // As if ten minutes had passed.
  await pending.updateOne({ conversationId: alone }, { $set: { at: new Date() } });
  await examplesAre([...missed, alone]);
  expect(await misses()).toHaveLength(2);
  const { body } = await owner.get<{ figures: { totals: object } }>(`/assistants/${assistantId}/overview`);
  expect(body.figures.totals).toMatchObject({ hedged: 6, answered: 2, notAnswered: 2 });
});
