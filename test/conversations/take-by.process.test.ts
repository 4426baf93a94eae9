import { randomUUID } from 'node:crypto';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Assistant } from '../../src/assistants/assistant.ts';
import type { StoredConversation } from '../../src/conversations/conversation.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { createFeed } from '../kit/feed.ts';
import { followInbox } from '../support/live-stream.ts';
import { anOperator } from '../support/operator-client.ts';
import { startRealProcess } from '../kit/processes.ts';
import { sized } from '../support/size.ts';
import { openStack, useOpened, useStack } from '../support/stack.ts';

// Three workers sweep at the same time.
const stack = useStack({ replyWorkers: 2, timing: { sweepEveryMs: 250 } });
const MINUTE_MS = 60_000;
const HUMAN = 'I want to speak to a human please';

type Input = { ifNotTaken?: Assistant['ifNotTaken']; takeWithinMinutes?: number | null; openingHours?: object | null };

const owner = useOpened(() => anOperator(stack));

const anEscalation = async ({ ifNotTaken = 'remind', takeWithinMinutes = 10, openingHours = null }: Input = {}) => {
  const assistant = await anAssistant(stack);
  const settings = { ifNotTaken, takeWithinMinutes, openingHours };
  const { status } = await owner.call('PATCH', `/assistants/${assistant.assistantId}`, settings);
  expect(status).toBe(200);
  const session_id = randomUUID();
  const say = (message: string) => assistant.chat(aTurn({ session_id, message }));
  const { conversationId } = (await say('What are your opening hours?')).body;
  const escalate = () =>
    assistant.call(`/api/v1/conversations/${conversationId}/escalate`, { method: 'POST', body: {} });
  return { ...assistant, say, escalate, conversationId, where: { conversationId } };
};

const conversations = () => stack.service.mongo.collection<StoredConversation>('conversations');
const storedOf = async (conversationId: string): Promise<StoredConversation> => {
  const found = await conversations().findOne({ conversationId });
  if (!found) throw new Error('there is no such conversation');
  return found;
};
const minutesLeft = ({ takeBy }: StoredConversation): number =>
  takeBy ? Math.round((takeBy.getTime() - Date.now()) / MINUTE_MS) : Number.NaN;
const runOut = (conversationId: string) =>
  conversations().updateOne({ conversationId }, { $set: { takeBy: new Date(Date.now() - 1_000) } });
const isOver = (conversationId: string) =>
  eventually(async () => expect((await storedOf(conversationId)).takeBy).toBeUndefined());

/** Waits until later sweeps of the workers have run: they have ended the time of another escalation several times. */
const anotherSweep = async (): Promise<void> => {
  const { escalate, conversationId } = await anEscalation();
  await escalate();
  for (let nth = 0; nth < 3; nth += 1) {
    await runOut(conversationId);
    await isOver(conversationId);
  }
};

test('an escalation by a caller and one by the assistant set the time; without a setting there is none', async () => {
  const byCaller = await anEscalation();
  const byAssistant = await anEscalation({ takeWithinMinutes: 30 });
  const none = await anEscalation({ takeWithinMinutes: null });

  await byCaller.escalate();
  await byAssistant.say(HUMAN);
  await none.escalate();

  expect(minutesLeft(await storedOf(byCaller.conversationId))).toBe(10);
  expect(minutesLeft(await storedOf(byAssistant.conversationId))).toBe(30);
  expect(await storedOf(none.conversationId)).not.toHaveProperty('takeBy');
  const { body } = await owner.get(`/conversations/${byCaller.conversationId}`);
  expect(body).toMatchObject({ takeBy: expect.any(String), remindedAt: null });
});

test.each(['assigned', 'answered', 'handed back', 'resolved'] as const)(
  'an escalation that was %s is taken',
  async (how) => {
    const { escalate, conversationId, where } = await anEscalation();
    const { transitions } = stack.service.conversations;
    await escalate();

    if (how === 'assigned')
      await owner.post(`/conversations/${conversationId}/assign`, { operatorId: owner.operatorId });
    if (how === 'answered') await transitions.replyAsOperator(where, 'I am here');
    if (how === 'handed back') await transitions.handBack(where);
    if (how === 'resolved') await transitions.resolve(where, owner.operatorId);

    const stored = await storedOf(conversationId);
    expect([stored.takeBy, stored.remindedAt]).toEqual([undefined, undefined]);
  },
);

describe('an assignment', () => {
  const anAssigned = async () => {
    const escalation = await anEscalation();
    const { conversationId } = escalation;
    const assign = () => owner.post(`/conversations/${conversationId}/assign`, { operatorId: owner.operatorId });
    await escalation.escalate();
    await assign();
    expect(await storedOf(conversationId)).toMatchObject({ assigneeId: owner.operatorId });
    return { ...escalation, assign };
  };

  test.each([
    ['a hand-back', 'hand-back'],
    ['a resolve', 'resolve'],
  ])('ends with %s, and whoever escalates again, the conversation must be taken again', async (_name, how) => {
    const all = [await anAssigned(), await anAssigned()];
    const [byCaller, byAssistant] = all;

    for (const { conversationId } of all) await owner.post(`/conversations/${conversationId}/${how}`, {});
    const ended = await Promise.all(all.map(({ conversationId }) => storedOf(conversationId)));
    await byCaller?.escalate();
    await byAssistant?.say(HUMAN);

    for (const one of ended) expect(one).not.toHaveProperty('assigneeId');
    for (const { conversationId } of all) {
      const stored = await storedOf(conversationId);
      expect([stored.status, stored.assigneeId, minutesLeft(stored)]).toEqual(['escalated', undefined, 10]);
    }
  });

  test('of a resolved conversation ends when it is reopened or escalated', async () => {
    const [byOperator, byVisitor, byCaller] = [await anAssigned(), await anAssigned(), await anAssigned()];
    for (const { conversationId, assign } of [byOperator, byVisitor, byCaller]) {
      await owner.post(`/conversations/${conversationId}/resolve`, {});
      await assign();
    }

    await owner.post(`/conversations/${byOperator.conversationId}/reopen`, {});
    await byVisitor.say('Do you have a car park?');
    await byCaller.escalate();

    for (const { conversationId } of [byOperator, byVisitor, byCaller])
      expect(await storedOf(conversationId)).not.toHaveProperty('assigneeId');
    expect(minutesLeft(await storedOf(byCaller.conversationId))).toBe(10);
  });

  test.each([
    ['a caller', 'escalate'],
    ['the assistant', 'say'],
  ] as const)('of an open conversation counts as taken when %s escalates it', async (_name, by) => {
    const { conversationId, say, escalate } = await anEscalation();
    await owner.post(`/conversations/${conversationId}/assign`, { operatorId: owner.operatorId });

    await (by === 'say' ? say(HUMAN) : escalate());

    const stored = await storedOf(conversationId);
    expect([stored.status, stored.assigneeId, stored.takeBy]).toEqual(['escalated', owner.operatorId, undefined]);
  });
});

describe('an escalation whose assignee cannot take it any more', () => {
  type Escalation = Awaited<ReturnType<typeof anEscalation>>;
  const lose = {
    'was disabled': (operatorId: string) => owner.call('PATCH', `/operators/${operatorId}`, { disabled: true }),
    'lost the assistant': (operatorId: string) => owner.call('PATCH', `/operators/${operatorId}`, { assistantIds: [] }),
  };
  const anAgentWith = async ({ conversationId }: Escalation): Promise<string> => {
    const { operatorId } = await anOperator(stack, 'agent');
    await owner.post(`/conversations/${conversationId}/assign`, { operatorId });
    return operatorId;
  };
  const hasTakeBy = (conversationId: string) =>
    eventually(async () => expect(minutesLeft(await storedOf(conversationId))).toBe(10));

  const LOSSES: (keyof typeof lose)[] = ['was disabled', 'lost the assistant'];
  test.each(sized({ everyday: LOSSES.slice(1), long: LOSSES }))(
    'because the assignee %s before it, must be taken, whoever escalates',
    async (how) => {
      const all = [await anEscalation(), await anEscalation()];
      const [byCaller, byAssistant] = all;
      for (const one of all) await lose[how](await anAgentWith(one));

      await byCaller?.escalate();
      await byAssistant?.say(HUMAN);

      for (const { conversationId } of all) expect(minutesLeft(await storedOf(conversationId))).toBe(10);
    },
  );

  test.each(sized({ everyday: LOSSES.slice(0, 1), long: LOSSES }))(
    'because the assignee %s meanwhile, must be taken again, and is handed back if nobody does',
    async (how) => {
      const escalation = await anEscalation({ ifNotTaken: 'hand_back' });
      const { escalate, conversationId } = escalation;
      const kept = await anEscalation();
      await owner.post(`/conversations/${kept.conversationId}/assign`, { operatorId: owner.operatorId });
      await kept.escalate();
      const operatorId = await anAgentWith(escalation);
      await escalate();
      const before = await storedOf(conversationId);

      await lose[how](operatorId);
      await hasTakeBy(conversationId);
      const due = await storedOf(conversationId);
      await runOut(conversationId);
      await isOver(conversationId);

      expect([before.takeBy, due.updatedAt]).toEqual([undefined, before.updatedAt]);
      const { status, assigneeId } = await storedOf(conversationId);
      expect([status, assigneeId]).toEqual(['open', undefined]);
      expect((await storedOf(kept.conversationId)).takeBy).toBeUndefined();
    },
  );

  test('because it was assigned to nobody, must be taken again', async () => {
    const { escalate, conversationId } = await anEscalation();
    await owner.post(`/conversations/${conversationId}/assign`, { operatorId: owner.operatorId });
    await escalate();

    await owner.post(`/conversations/${conversationId}/assign`, { operatorId: null });

    const stored = await storedOf(conversationId);
    expect([stored.assigneeId, minutesLeft(stored)]).toEqual([undefined, 10]);
  });
});

test('nobody took it in time: operators are reminded once, and the conversation stays with them', async () => {
  const { escalate, conversationId, where } = await anEscalation({ ifNotTaken: 'remind' });
  await escalate();
  await runOut(conversationId);
  await isOver(conversationId);
  const { remindedAt, updatedAt, seq } = await storedOf(conversationId);

  await anotherSweep();

  const later = await storedOf(conversationId);
  expect([later.status, later.remindedAt, later.updatedAt, later.seq]).toEqual([
    'escalated',
    remindedAt,
    updatedAt,
    seq,
  ]);
  expect(remindedAt).toBeInstanceOf(Date);
  const ended = stack.logs.filter((line) => line['msg'] === 'an escalation was not taken in time');
  expect(ended.filter((line) => line['conversationId'] === conversationId)).toHaveLength(1);
  const { body } = await owner.get<{ conversations: object[] }>('/inbox?status=escalated');
  expect(body.conversations).toContainEqual(
    expect.objectContaining({ conversationId, takeBy: null, remindedAt: remindedAt?.toISOString() }),
  );
  await stack.service.conversations.transitions.replyAsOperator(where, 'I am here');
  expect(await storedOf(conversationId)).not.toHaveProperty('remindedAt');
});

test.each([
  ['remind', expect.any(String) as string],
  ['stay', null],
] as const)(
  'callers see no change when nobody took it in time and the setting says %s; the inbox follows',
  async (ifNotTaken, remindedAt) => {
    const { escalate, conversationId, call } = await anEscalation({ ifNotTaken });
    await escalate();
    const { updatedAt } = await storedOf(conversationId);
    const stream = await followInbox(stack.url, owner);
    onTestFinished(stream.leave);
    await runOut(conversationId);

    await isOver(conversationId);

    await eventually(() => expect(stream.rows().get(conversationId)).toMatchObject({ takeBy: null, remindedAt }));
    expect((await storedOf(conversationId)).updatedAt).toEqual(updatedAt);
    const { body } = await call<{ conversations: object[] }>(
      `/api/v1/conversations?updated_after=${updatedAt.toISOString()}`,
    );
    expect(body.conversations).toEqual([]);
  },
);

test('nobody took it in time: it is handed back once, with a sentence in the visitor’s language', async () => {
  const { escalate, conversationId, say, history } = await anEscalation({ ifNotTaken: 'hand_back' });
  await say('Wann habt ihr geöffnet? Ich möchte gerne morgen vorbeikommen.');
  await escalate();
  await runOut(conversationId);
  await isOver(conversationId);
  await anotherSweep();

  const { messages, status } = (await history(conversationId)).body;
  expect(status).toBe('open');
  expect(messages.slice(-3).map(({ role, content, turnId }) => [role, content.slice(0, 28), turnId])).toEqual([
    ['system', 'Handed off to a human: manual'.slice(0, 28), null],
    ['system', 'Handed back to the assistant', null],
    ['assistant', 'Leider konnte niemand aus un', null],
  ]);
  expect(messages.slice(-3).map(({ seq }) => seq)).toEqual([3, 4, 5]);
  expect((await say('What are your opening hours?')).body.reply).toBe('We are open from 9 to 5.');
});

test('nobody took it in time: it stays, if the setting says so or the limit was removed', async () => {
  const stays = await anEscalation({ ifNotTaken: 'stay' });
  const removed = await anEscalation({ ifNotTaken: 'hand_back' });
  for (const one of [stays, removed]) await one.escalate();
  await owner.call('PATCH', `/assistants/${removed.assistantId}`, { takeWithinMinutes: null });
  await eventually(async () => {
    const assistant = await stack.service.assistants.findAssistant(removed.assistantId);
    expect(assistant?.takeWithinMinutes).toBeNull();
  });
  await anotherSweep(); // so that every worker has forgotten the old setting
  for (const one of [stays, removed]) {
    await runOut(one.conversationId);
    await isOver(one.conversationId);
    const { status, seq } = await storedOf(one.conversationId);
    expect([status, seq]).toEqual(['escalated', 2]);
  }
});

const clock = (date: Date) => date.toISOString().slice(11, 16);

/** Opening hours in UTC that begin in about two days, for an hour. */
const closedNow = () => {
  const opening = new Date(Math.ceil(Date.now() / (60 * MINUTE_MS)) * 60 * MINUTE_MS + 48 * 60 * MINUTE_MS);
  const isLast = opening.getUTCHours() === 23;
  const closing = new Date(opening.getTime() + 60 * MINUTE_MS);
  const week = [{ day: opening.getUTCDay(), from: clock(opening), to: isLast ? '24:00' : clock(closing) }];
  return { opening, openingHours: { timeZone: 'UTC', week } };
};

test('outside opening hours the holding text says when somebody answers, and the time does not run', async () => {
  const { opening, openingHours } = closedNow();
  const byCaller = await anEscalation({ openingHours });
  const byAssistant = await anEscalation({ openingHours });
  const weekday = (language: string) =>
    new Intl.DateTimeFormat(language, { weekday: 'long', timeZone: 'UTC' }).format(opening);

  await byCaller.escalate();
  const held = await byCaller.say('Ist denn heute niemand da? Ich warte schon sehr lange.');
  const again = await byCaller.say('Hallo?');
  const handoff = await byAssistant.say(HUMAN);

  expect(held.body.reply).toMatch(/^Danke für Ihre Nachricht.* Unser Team ist gerade nicht da/);
  expect(held.body.reply).toContain(weekday('de'));
  expect(again.body.messageId).toBe(held.body.messageId);
  expect(handoff.body.reply).toContain('Our team is away at the moment. It will be back: ');
  expect(handoff.body.reply).toContain(weekday('en'));
  const expected = new Date(opening.getTime() + 10 * MINUTE_MS);
  expect((await storedOf(byCaller.conversationId)).takeBy).toEqual(expected);
  expect((await storedOf(byAssistant.conversationId)).takeBy).toEqual(expected);
});

test('a playground conversation has no take-by time', async () => {
  const { assistantId } = await anEscalation();
  const { body } = await owner.post<{ conversationId: string }>(`/assistants/${assistantId}/playground`, {
    sessionId: randomUUID(),
    message: HUMAN,
  });

  expect(await storedOf(body.conversationId)).not.toHaveProperty('takeBy');
});

test.each<[string, object]>([
  ['takeWithinMinutes', { takeWithinMinutes: 0 }],
  ['takeWithinMinutes', { takeWithinMinutes: 10_081 }],
  ['ifNotTaken', { ifNotTaken: 'never' }],
  [
    'openingHours.timeZone',
    { openingHours: { timeZone: 'Mars/Base', week: [{ day: 1, from: '09:00', to: '10:00' }] } },
  ],
  ['openingHours.week.0.to', { openingHours: { timeZone: 'UTC', week: [{ day: 1, from: '09:00', to: '09:00' }] } }],
])('the setting %s is checked', async (field, change) => {
  const { assistantId } = await anAssistant(stack);

  const { status, body } = await owner.call('PATCH', `/assistants/${assistantId}`, change);

  expect([status, body]).toMatchObject([422, { error: { field } }]);
});

test('workers with wrong clocks end a time when it is over, and not before', async () => {
  const own = await openStack({ replyWorkers: 0, deliveryWorkers: 0 });
  const start = (skewMs: number) => startRealProcess('delivery', own.env, { skewMs });
  const { assistantId } = await own.service.assistants.createAssistant({
    name: 'Clocks',
    takeWithinMinutes: 5,
    ifNotTaken: 'remind',
  });
  const rows = own.service.mongo.collection<StoredConversation>('conversations');
  const [early = '', due = ''] = await createFeed(own.service).openConversations(assistantId, 2);
  const idOf = async (key: string) => (await rows.findOne({ _id: key }))?.conversationId ?? '';
  for (const key of [early, due])
    await own.service.conversations.transitions.escalate({ conversationId: await idOf(key) }, {});
  const processes = await Promise.all([start(11 * MINUTE_MS), start(-11 * MINUTE_MS)]);
  try {
    await rows.updateOne({ _id: due }, { $set: { takeBy: new Date(Date.now() - 1_000) } });

    await eventually(async () => expect((await rows.findOne({ _id: due }))?.remindedAt).toBeInstanceOf(Date));
    expect((await rows.findOne({ _id: early }))?.takeBy).toBeInstanceOf(Date);
  } finally {
    for (const one of processes) await one.kill();
    await own.close();
  }
});
