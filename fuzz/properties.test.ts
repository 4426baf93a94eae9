import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { verifyWebhook } from '../packages/client/src/verify-webhook.ts';
import { afterOpenMinutes, nextOpening, OpeningHours } from '../src/assistants/opening-hours.ts';
import { createTimeCursor } from '../src/platform/process/validation.ts';
import { ApiError } from '../src/platform/process/errors.ts';
import { ChatRequest } from '../src/turns/turn.ts';
import { truncateContent } from '../src/conversations/event.ts';
import { signEvent } from '../src/events/signature.ts';
import { anAssistant, type HistoryBody } from '../test/support/builders.ts';
import { aScriptedEngine } from '../test/support/scripted-engine.ts';
import { useStack } from '../test/support/stack.ts';
import { validatorOf } from '../test/support/validate-response.ts';
import { often, record, seed } from '../test/kit/fuzz-part.ts';

const CASES = often({ short: 100, whole: 50_000 });
const CONVERSATIONS = often({ short: 2, whole: 200 });
const drawn = { numRuns: CASES, seed };

/** Any string that JavaScript can hold, lone surrogates and long ones included. */
const anyText = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 600 }),
  fc.string({ unit: 'grapheme', maxLength: 600 }),
  fc.array(fc.integer({ min: 0, max: 0xffff }), { maxLength: 600 }).map((units) => String.fromCharCode(...units)),
);
const storable = anyText.map((text) => text.toWellFormed());

test('a text is cut at 500 code points, and a character never in two', () => {
  fc.assert(
    fc.property(storable, (text) => {
      const cut = truncateContent(text);
      expect(text.startsWith(cut)).toBe(true);
      expect([...cut]).toEqual([...text].slice(0, 500));
    }),
    drawn,
  );
});

test('a receiver accepts what was signed, and nothing that differs in one byte', () => {
  const bytes = fc.uint8Array({ minLength: 1, maxLength: 300 });
  const secret = fc.string({ minLength: 1, maxLength: 60 });
  const signed = fc.record({
    body: bytes,
    secret,
    other: secret,
    timestamp: fc.nat(9_999_999_999),
    at: fc.nat(),
    by: fc.integer({ min: 1, max: 255 }),
  });
  fc.assert(
    fc.property(signed, ({ body, secret: own, other, timestamp, at, by }) => {
      const header = signEvent({ body: Buffer.from(body), secrets: [other, own], timestamp });
      const options = { now: timestamp };
      expect(verifyWebhook(body, header, own, options).ok).toBe(true);
      expect(verifyWebhook(body, header, `${own}.`, options).ok).toBe(other === `${own}.`);
      const changed = Uint8Array.from(body);
      changed[at % body.length] = (changed[at % body.length] ?? 0) ^ by;
      expect(verifyWebhook(changed, header, own, options).ok).toBe(false);
      const later = header.replace(/^t=\d+/, `t=${timestamp + 1}`);
      expect(verifyWebhook(body, later, own, options).ok).toBe(false);
    }),
    drawn,
  );
});

test('a cursor leads to where it was made, and any other text is refused', () => {
  const cursors = createTimeCursor(/^[\w-]{1,36}$/);
  const id = fc.stringMatching(/^[\w-]{1,36}$/);
  fc.assert(
    fc.property(fc.date({ min: new Date(0), noInvalidDate: true }), id, anyText, (at, lastId, text) => {
      expect(cursors.decode(cursors.encode({ at, id: lastId }))).toEqual({ at, id: lastId });
      for (const given of [
        text,
        Buffer.from(text).toString('base64url'),
        Buffer.from(JSON.stringify([text, 1])).toString('base64url'),
      ])
        expect(() => cursors.decode(given)).toThrow(ApiError);
    }),
    drawn,
  );
});

test('the document and the code accept the same messages', () => {
  const validate = validatorOf(['components', 'schemas', 'ChatRequest']);
  const field = fc.oneof(
    { weight: 4, arbitrary: storable },
    {
      weight: 2,
      arbitrary: fc.constantFrom(
        '',
        ' ',
        '\u00a0',
        '\ufeff',
        '\u2028',
        'a\u0085',
        'a\0',
        'a\n',
        'x'.repeat(256),
        '😀'.repeat(256),
        'x'.repeat(257),
        'x'.repeat(8_000),
        'x'.repeat(8_001),
      ),
    },
    { weight: 1, arbitrary: fc.jsonValue() },
  );
  const language = fc.oneof(field, fc.constantFrom('en', 'de-AT', 'zh-Hant', 'x-a', 'i-klingon', 'en_US', 'e', null));
  const body = fc.record({ session_id: field, message: field, language }, { requiredKeys: [] });
  fc.assert(
    fc.property(body, (given) => {
      const { language: tag, ...others } = given;
      expect(validate(others)).toBe(ChatRequest.safeParse(others).success);
      // A pattern cannot say all rules of a tag, so the document may only be milder.
      expect([tag, ChatRequest.safeParse(given).success && !validate(given)]).toEqual([tag, false]);
    }),
    drawn,
  );
});

const MINUTE_MS = 60_000;
const WEEK_MINUTES = 7 * 24 * 60;
/** Time that needs very many days to pass is cut off. */
const SOME_DAYS = 6 * WEEK_MINUTES;
const clock = (minutes: number): string =>
  `${String(Math.floor(minutes / 60)).padStart(2, '0')}:${String(minutes % 60).padStart(2, '0')}`;
const interval = fc
  .record({ day: fc.nat(6), one: fc.nat(1_440), other: fc.nat(1_440) })
  .filter(({ one, other }) => one !== other)
  .map(({ day, one, other }) => ({ day, from: clock(Math.min(one, other)), to: clock(Math.max(one, other)) }));
// None of these sets its clock in the weeks that are tried.
const hours = fc
  .record({
    timeZone: fc.constantFrom(
      'UTC',
      'Europe/Berlin',
      'Asia/Kolkata',
      'Pacific/Chatham',
      'America/St_Johns',
      'Etc/GMT+12',
    ),
    week: fc.array(interval, { minLength: 1, maxLength: 8 }),
  })
  .filter((one) => OpeningHours.safeParse(one).success);
const OFFSETS: Record<string, number> = {
  UTC: 0,
  'Europe/Berlin': 60,
  'Asia/Kolkata': 330,
  'Pacific/Chatham': 825,
  'America/St_Johns': -210,
  'Etc/GMT+12': -720,
};
const FROM = Date.UTC(2026, 10, 22);

/** The minutes of the week in which people answer, on the clock on the wall. */
const openMinutes = ({ week }: OpeningHours): boolean[] => {
  const open = Array.from({ length: WEEK_MINUTES }, () => false);
  const minutes = (time: string): number => Number(time.slice(0, 2)) * 60 + Number(time.slice(3));
  for (const { day, from, to } of week) open.fill(true, day * 1_440 + minutes(from), day * 1_440 + minutes(to));
  return open;
};

test('opening hours agree with a table of every minute of the week', () => {
  fc.assert(
    fc.property(hours, fc.nat(2 * WEEK_MINUTES), fc.integer({ min: 1, max: 2_000 }), (given, minute, wanted) => {
      const open = openMinutes(given);
      const start = minute + (OFFSETS[given.timeZone] ?? 0) + WEEK_MINUTES;
      const isOpen = (nth: number): boolean => open[(start + nth) % WEEK_MINUTES] === true;
      const at = new Date(FROM + minute * MINUTE_MS);
      let next = 0;
      while (!isOpen(next)) next += 1;
      const after = (nth: number): Date => new Date(at.getTime() + nth * MINUTE_MS);
      expect(nextOpening(given, at)).toEqual(next === 0 ? null : after(next));
      let [passed, end] = [0, 0];
      for (let nth = 0; passed < wanted && nth < SOME_DAYS; nth += 1)
        if (isOpen(nth)) [passed, end] = [passed + 1, nth + 1];
      expect(afterOpenMinutes(given, at, passed)).toEqual(after(end));
    }),
    { ...drawn, numRuns: Math.ceil(CASES / 10) },
  );
});

const { engine } = aScriptedEngine();
const stack = useStack({ engine, apis: 2 });

const CHANGES = ['say', 'speak', 'resolve', 'escalate', 'hand back'] as const;

test('numbers have no gaps, and pages of any size are the whole, whatever happens at once', async () => {
  const assistant = await anAssistant(stack);
  const { transitions } = stack.service.conversations;
  const what = fc.constantFrom<(typeof CHANGES)[number]>(...CHANGES, 'say', 'say');
  const groups = fc.array(fc.array(what, { minLength: 1, maxLength: 6 }), { minLength: 1, maxLength: 5 });
  let messages = 0;
  const property = async (steps: (typeof CHANGES)[number][][], limit: number, from: number): Promise<void> => {
    const session_id = randomUUID();
    const { conversationId } = (await assistant.chat({ session_id, message: 'hello' })).body;
    const where = { conversationId };
    const change: Record<(typeof CHANGES)[number], () => Promise<unknown>> = {
      say: () => assistant.chat({ session_id, message: randomUUID() }),
      speak: () => transitions.replyAsOperator(where, 'a person speaks'),
      resolve: () => transitions.resolve(where, randomUUID()),
      escalate: () => assistant.call(`/api/v1/conversations/${conversationId}/escalate`, { body: {} }),
      'hand back': () => transitions.handBack(where).catch(() => undefined), // it may not be with a person
    };
    for (const group of steps) await Promise.all(group.map((one) => change[one]()));

    const whole = (await assistant.history(conversationId)).body.messages;
    const read: HistoryBody['messages'] = [];
    for (let cursor: string | null = ''; cursor !== null; ) {
      const page: HistoryBody = (
        await assistant.history(conversationId, `?limit=${limit}${cursor && `&cursor=${cursor}`}`)
      ).body;
      expect(page.messages.length).toBeLessThanOrEqual(limit);
      read.push(...page.messages);
      cursor = page.nextCursor;
    }
    expect(read).toEqual(whole);
    const numbers = [...new Set(whole.map(({ seq }) => seq))];
    expect(numbers).toEqual(numbers.map((_, nth) => nth + 1));
    const newer = (await assistant.history(conversationId, `?after_seq=${from}`)).body.messages;
    expect(newer).toEqual(whole.filter(({ seq }) => (seq ?? 0) > from));
    messages += whole.length;
  };
  await fc.assert(fc.asyncProperty(groups, fc.integer({ min: 1, max: 9 }), fc.nat(12), property), {
    numRuns: CONVERSATIONS,
    seed,
  });

  record('properties', { cases: CASES, conversations: CONVERSATIONS, messages });
});
