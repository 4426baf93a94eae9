import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { seed } from '../kit/fuzz-part.ts';
import type { NewTurn } from '../../src/conversations/accept.ts';
import type { Message, StoredConversation, StoredPage } from '../../src/conversations/conversation.ts';
import { act, type TurnEnd } from '../../src/conversations/state.ts';
import { momentNow } from '../../src/conversations/transitions.ts';
import { conversationKeyOf, newPrefixedId } from '../../src/platform/process/ids.ts';
import { NO_SPAN } from '../../src/platform/process/tracing.ts';
import { EVENT_KINDS } from '../../src/conversations/event.ts';
import { anAssistant } from '../support/builders.ts';
import { anOperator } from '../support/operator-client.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

/**
 * Random actions of visitors, the assistant and people, some of them at once, through the writes of src/conversations.
 * What is stored afterwards is consistent: state, messages, events. No worker runs, so every event stays in the outbox.
 */

const RUNS = sized({ everyday: 8, long: 200 });
const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const OPERATOR = randomUUID();
const HOLDING = 'Somebody will be with you soon.';
const ANSWER = 'This is the answer.';

const lead = { leadScore: 5, leadBecause: [] };
const streaks = { lowConfidenceStreak: 0, engineErrorStreak: 0 };
const answer = { text: ANSWER, language: 'en', suggestedActions: [], why: {}, ...streaks };
const answered: TurnEnd = { kind: 'answered', answer, ...lead };
const handoff: TurnEnd = { kind: 'handoff', reason: 'user_requested', holdingText: HOLDING, why: {}, ...lead };
const held: TurnEnd = { kind: 'held', holdingText: HOLDING, ...lead };

type Run = { key: string; assistantId: string; sessionId: string; conversationId: string; accepted: number };

const accept = async (run: Run): Promise<void> => {
  const { key, assistantId, sessionId, conversationId } = run;
  const ids = { key, assistantId, sessionId, conversationId, turnId: newPrefixedId(key), messageId: randomUUID() };
  const said = { message: 'hello', language: 'en', dedupeKey: null, reservation: null, async: false };
  const turn: NewTurn = { ...ids, ...said, channel: 'api', replyTo: 'nobody', acceptedAt: new Date() };
  const options = { windowMs: 0, readBack: false, watch: () => undefined, span: NO_SPAN };
  const { kind } = await stack.service.conversations.accept(turn, options);
  if (kind === 'accepted') run.accepted += 1;
  else expect(kind).toBe('busy');
};

/** Ends the head as a worker would: as the state that it has read allows, and only if that is still so. */
const end = async ({ key }: Run, wanted: TurnEnd): Promise<void> => {
  const { conversations } = stack.service;
  const read = await conversations.findForAnswer(key);
  if (!read?.waiting[0]) return;
  const allowed = { open: wanted, escalated: held, resolved: answered }[read.status];
  await conversations.commit(read, [act.endTurn(read, allowed, momentNow())], []);
};

/** The conversation may have been resolved meanwhile, which refuses a hand-back. */
const unlessRefused = async (change: Promise<unknown>): Promise<void> => {
  await change.catch((cause: { code?: string }) => {
    if (cause.code !== 'validation_failed') throw cause;
  });
};

const collection = () => stack.service.mongo.collection<StoredConversation>('conversations');
const people = () => stack.service.conversations.transitions;
const inbox = () => stack.service.conversations.inbox;

const ACTIONS: Record<string, (run: Run) => Promise<unknown>> = {
  accept,
  answer: (run) => end(run, answered),
  handOver: (run) => end(run, handoff),
  fail: (run) => end(run, { kind: 'failed' }),
  escalate: ({ conversationId }) => people().escalate({ conversationId }, { reason: 'angry' }),
  handBack: ({ conversationId }) => unlessRefused(people().handBack({ conversationId })),
  notTaken: async ({ conversationId }) => {
    await collection().updateOne({ conversationId, takeBy: { $exists: true } }, { $set: { takeBy: new Date(0) } });
    await people().endTakeBy({ conversationId }, { how: 'hand_back', said: 'Nobody came.' });
  },
  take: ({ conversationId }) => inbox().assign(conversationId, OPERATOR),
  leave: ({ conversationId }) => people().unassign({ conversationId }),
  reply: ({ conversationId }) => people().replyAsOperator({ conversationId }, 'I am here.'),
  resolve: ({ conversationId }) => people().resolve({ conversationId }, OPERATOR),
  reopen: ({ conversationId }) => people().reopen({ conversationId }),
  addTag: ({ conversationId }) => people().addTag({ conversationId }, { tag: 'vip', color: null }),
  removeTag: ({ conversationId }) => people().removeTag({ conversationId }, 'vip'),
  setAttributes: ({ conversationId }) => people().setAttributes({ conversationId }, [{ name: 'plan', value: 'pro' }]),
  snooze: ({ conversationId }) => inbox().snooze(conversationId, { until: new Date(), at: new Date() }),
  note: ({ conversationId }) => inbox().markNoted(conversationId),
};

type Numbered = Message & { seq: number };

const storedOf = async ({ key, conversationId }: Run) => {
  const stored = (await collection().findOne({ _id: key })) as StoredConversation;
  const pages = await stack.service.mongo.collection<StoredPage>('messages').find({ conversationId }).toArray();
  const bySeq = new Map(pages.flatMap(({ entries }) => entries.map(({ seq, messages }) => [seq, messages] as const)));
  for (const [seq, messages] of Object.entries(stored.texts)) bySeq.set(Number(seq), messages);
  const entries = [...bySeq].toSorted(([a], [b]) => a - b);
  const messages = entries.flatMap(([seq, all]) => all.map((message): Numbered => ({ ...message, seq })));
  return { stored, numbers: entries.map(([seq]) => seq), messages };
};

/** Who answers, as the events tell it: the assistant, except between an escalation and its end. */
const checkOrder = (stored: StoredConversation, messages: Numbered[]): void => {
  const contentOf = new Map(messages.map(({ messageId, content }) => [messageId, content]));
  let isEscalated = false;
  for (const [nth, one] of (stored.outbox ?? []).entries()) {
    if (one.event === 'conversation.escalated') {
      expect(isEscalated).toBe(false);
      expect(stored.outbox?.[nth + 1]).toMatchObject({ event: 'message.sent', payload: { role: 'system' } });
      isEscalated = true;
    }
    if (one.event === 'conversation.resolved') isEscalated = false;
    if (one.event !== 'message.sent') continue;
    const content = contentOf.get(one.payload.message_id);
    if (content?.startsWith('Handed back')) isEscalated = false;
    else if (one.payload.turn_id !== null && isEscalated) expect(content).toBe(HOLDING);
  }
  expect(isEscalated).toBe(stored.status === 'escalated');
};

const check = async (run: Run): Promise<void> => {
  const { stored, numbers, messages } = await storedOf(run);
  const { status, outbox = [] } = stored;
  expect(numbers).toEqual(numbers.map((_, nth) => nth + 1));
  expect(stored.seq).toBe(numbers.length);
  expect(stored.waiting.length + stored.recent.length).toBe(run.accepted);
  expect(outbox.filter(({ event }) => event === 'message.received')).toHaveLength(run.accepted);
  const sent = outbox.flatMap((one) => (one.event === 'message.sent' ? [one.payload.message_id] : []));
  expect(sent).toEqual(messages.filter(({ role }) => role !== 'user').map(({ messageId }) => messageId));
  expect(stored.resolvedAt !== null && stored.resolvedBy !== null).toBe(status === 'resolved');
  if (status === 'open')
    expect([stored.escalatedAt, stored.escalationReason, stored.holding]).toEqual([null, null, null]);
  if (status !== 'escalated')
    expect([stored.waitingSince, stored.takeBy, stored.remindedAt]).toEqual([null, undefined, undefined]);
  checkOrder(stored, messages);
};

test('whatever people, visitors and the assistant do at once, what is stored is consistent', async () => {
  const { assistantId } = await anAssistant(stack);
  const owner = await anOperator(stack);
  await owner.call('PATCH', `/assistants/${assistantId}`, { takeWithinMinutes: 10 });
  const url = 'http://127.0.0.1:9/';
  await stack.service.endpoints.addEndpoint(assistantId, {
    url,
    events: EVENT_KINDS.filter((kind) => kind !== 'webhook.test'),
  });
  const names = fc.constantFrom(...Object.keys(ACTIONS), 'accept', 'answer', 'handOver');
  const rounds = fc.array(fc.array(names, { minLength: 1, maxLength: 5 }), { minLength: 4, maxLength: 16 });

  await fc.assert(
    fc.asyncProperty(rounds, async (all) => {
      const sessionId = randomUUID();
      const key = conversationKeyOf({ sessionKey: assistantId, sessionId, playground: false });
      const run: Run = { key, assistantId, sessionId, conversationId: newPrefixedId(key), accepted: 0 };
      await accept(run);
      for (const together of all) {
        await Promise.all(together.map(async (name) => ACTIONS[name]?.(run)));
        await check(run);
      }
      const { stored } = await storedOf(run);
      await (await stack.service.conversations.erase(stored)).purged;
      const { accept: _again, ...others } = ACTIONS;
      const late = await Promise.allSettled(Object.values(others).map((action) => action(run)));
      const codes = late.flatMap((one) => (one.status === 'rejected' ? [(one.reason as { code: string }).code] : []));
      expect(codes).toEqual(codes.map(() => 'not_found'));
      expect(await collection().findOne({ _id: key })).toBeNull();
    }),
    { numRuns: RUNS, seed },
  );
});
