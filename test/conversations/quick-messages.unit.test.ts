import { expect, test } from 'vitest';
import { MAX_PENDING, type PendingTurn } from '../../src/conversations/conversation.ts';
import {
  askedIn,
  endTogether,
  initialState,
  togetherIn,
  type TurnEnd,
  waitsUntil,
} from '../../src/conversations/state.ts';
import { countMessages } from '../../src/insights/figures.ts';
import { readLessons } from '../../src/insights/misses.ts';

// Which pending turns are answered together, and what their end stores (docs/contract.md, Quick messages).

const QUIET_MS = 2_000;
const at = (ms: number): Date => new Date(1_000_000 + ms);

let ids = 0;
const aTurn = (ms: number, more: Partial<PendingTurn> = {}): PendingTurn => ({
  turnId: `turn-${(ids += 1)}`,
  messageId: `message-${ids}`,
  message: `message at ${ms}`,
  language: 'en',
  replyTo: [],
  acceptedAt: at(ms),
  quick: { until: at(ms + QUIET_MS), atLatest: at(ms + 3 * QUIET_MS) },
  ...more,
});
const pending = (waiting: PendingTurn[], status: 'open' | 'escalated' | 'resolved' = 'open') => ({ status, waiting });
const countTogether = (waiting: PendingTurn[]): number => togetherIn(pending(waiting)).length;

test('a turn belongs to the group if it came while the one before it waited, and until the group’s latest time', () => {
  expect(countTogether([aTurn(0), aTurn(1_999), aTurn(3_999)])).toBe(3);
  expect(countTogether([aTurn(0), aTurn(2_001)])).toBe(1);
  const stream = Array.from({ length: 10 }, (_, nth) => aTurn(nth * 1_000));
  expect(countTogether(stream)).toBe(7);
  expect(countTogether([aTurn(0), aTurn(-5)])).toBe(2); // two processes’ clocks
});

test('a group waits until nothing came for its quiet time, at most three of them, and not if it cannot grow', () => {
  expect(waitsUntil(pending([aTurn(0)]))).toEqual(at(2_000));
  expect(waitsUntil(pending([aTurn(0), aTurn(1_500)]))).toEqual(at(3_500));
  expect(waitsUntil(pending([aTurn(0), aTurn(1_900), aTurn(3_800), aTurn(5_700)]))).toEqual(at(6_000));
  expect(waitsUntil(pending([aTurn(0), aTurn(2_500)]))).toBeNull();
  expect(waitsUntil(pending(Array.from({ length: MAX_PENDING }, () => aTurn(0))))).toBeNull();
  expect(waitsUntil(pending([aTurn(0, { message: 'x'.repeat(7_999) }), aTurn(1, { message: 'xx' })]))).toBeNull();
});

test('without the setting, for a resumed turn and while a person handles the conversation nothing waits or is merged', () => {
  const { quick: _quick, ...plain } = aTurn(0);
  for (const waiting of [
    [plain, aTurn(1)],
    [plain, { ...plain }],
  ]) {
    expect([countTogether(waiting), waitsUntil(pending(waiting))]).toEqual([1, null]);
  }
  expect([countTogether([aTurn(0), plain]), waitsUntil(pending([aTurn(0), plain]))]).toEqual([1, null]);
  const escalated = pending([aTurn(0), aTurn(1)], 'escalated');
  expect([togetherIn(escalated).length, waitsUntil(escalated)]).toEqual([1, null]);
  expect([togetherIn(pending([])), waitsUntil(pending([]))]).toEqual([[], null]);
});

const lead = { leadScore: 7, leadBecause: [] };
const answered: TurnEnd = {
  kind: 'answered',
  answer: {
    text: 'answer',
    language: 'en',
    suggestedActions: [],
    why: { kind: 'unsure', threshold: 0.8, hits: [] },
    lowConfidenceStreak: 1,
    engineErrorStreak: 0,
  },
  ...lead,
};

const endTwo = (end: TurnEnd) => {
  const waiting = [
    aTurn(0, { message: 'hi', async: true, keyId: 'k' }),
    aTurn(1, { message: 'and on Sundays?' }),
    aTurn(9_000),
  ];
  const before = { ...initialState(), waiting, seq: 4 };
  return { waiting, ended: endTogether(before, { end, count: 2 }, { at: at(3_000), ids: ['reply', 'handoff'] }) };
};

test('each message gets its own number, and all turns have the reply of the last one', () => {
  const { waiting, ended } = endTwo(answered);
  const [first, last] = ended;

  expect(ended.map(({ changes }) => changes.seq)).toEqual([5, 6]);
  expect(first?.entries).toEqual([
    {
      seq: 5,
      messages: [
        {
          messageId: waiting[0]?.messageId,
          turnId: waiting[0]?.turnId,
          role: 'user',
          content: 'hi',
          language: 'en',
          keyId: 'k',
          createdAt: at(0),
          mergedInto: { messageId: waiting[1]?.messageId, replyMessageId: 'reply', replySeq: 6 },
        },
      ],
    },
  ]);
  expect(first?.finished).toEqual({
    turnId: waiting[0]?.turnId,
    messageId: waiting[0]?.messageId,
    outcome: 'answered',
    seq: 5,
    replySeq: 6,
    replyMessageId: 'reply',
    finishedAt: at(3_000),
    async: true,
    mergedInto: waiting[1]?.messageId,
  });
  expect(first?.events).toEqual([]);
  expect(last?.finished).toMatchObject({ turnId: waiting[1]?.turnId, seq: 6, replySeq: 6, replyMessageId: 'reply' });
  expect(last?.events.map(({ event }) => event)).toEqual(['message.sent']);
});

test('a hand-over happens once, and a failure fails the first turn only', () => {
  const handoff = { kind: 'handoff', reason: 'user_requested', holdingText: 'soon', why: {}, ...lead } as const;
  const { ended } = endTwo(handoff);
  expect(ended.flatMap(({ events }) => events.map(({ event }) => event))).toEqual([
    'message.sent',
    'conversation.escalated',
    'message.sent',
  ]);
  expect(endTwo({ kind: 'failed' }).ended.map(({ finished }) => finished.outcome)).toEqual(['failed']);
});

test('a group counts as its messages and one reply, and what it asked is the text of all', () => {
  const { ended } = endTwo(answered);
  const entries = ended.flatMap((one) => one.entries);
  const counts = countMessages('a', entries).flatMap((one) => Object.keys(one.counts));

  expect(counts.filter((name) => !name.startsWith('buckets'))).toEqual(['turns', 'turns', 'notAnswered']);
  const visitor = entries[1]?.messages[0];
  expect(visitor && askedIn(entries, visitor)).toBe('hi\nand on Sundays?');
  expect(readLessons(entries)).toEqual([{ kind: 'miss', question: 'hi\nand on Sundays?', language: 'en', at: at(1) }]);
});
