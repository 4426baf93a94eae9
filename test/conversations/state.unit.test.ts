import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { seed } from '../kit/fuzz-part.ts';
import type { Message, PendingTurn, Status, StoredConversation } from '../../src/conversations/conversation.ts';
import { act, applied, type Effect, initialState, type Moment, type TurnEnd } from '../../src/conversations/state.ts';
import type { ConversationEvent } from '../../src/conversations/event.ts';
import { sized } from '../support/size.ts';

/**
 * What each action does to a conversation: the table of docs/design.md, Actions, is what the functions do; and whatever
 * happens in whatever order, the rules of docs/contract.md, States, hold.
 */

const RUNS = sized({ everyday: 400, long: 5_000 });

let ids = 0;
const newId = (): string => `id-${(ids += 1)}`;
const momentAt = (at: Date): Moment => ({ at, ids: [newId(), newId()] });
const aTurn = (more: Partial<PendingTurn> = {}): PendingTurn => ({
  turnId: newId(),
  messageId: newId(),
  message: 'hello',
  language: 'en',
  replyTo: [],
  acceptedAt: new Date(0),
  ...more,
});

type Conversation = Omit<StoredConversation, 'updatedAt' | 'createdAt'>;
const aConversation = (): Conversation => ({
  _id: 'key',
  conversationId: 'c',
  assistantId: 'a',
  sessionId: 's',
  channel: 'api',
  language: 'en',
  headSince: new Date(0),
  waiting: [],
  ...initialState(),
});

const lead = { leadScore: 7, leadBecause: ['asked'] };
const answer = {
  text: 'answer',
  language: 'en',
  suggestedActions: [],
  why: {},
  lowConfidenceStreak: 1,
  engineErrorStreak: 0,
};
const handoff = { kind: 'handoff', reason: 'user_requested', holdingText: 'soon', why: {}, ...lead } as const;
/** How a turn may end (docs/contract.md). */
const MAY_END: Record<Status, string[]> = {
  open: ['a turn is answered', 'a turn hands over', 'a turn hands over, with an answer', 'a turn fails'],
  escalated: ['a turn is held', 'a turn fails'],
  resolved: ['a turn is answered', 'a turn fails'],
};

type Done = Effect & { pending?: PendingTurn };
type Action = (before: Conversation, at: Date) => Done | null;
const back = { how: 'hand_back', said: 'Nobody came.' } as const;
const endOf =
  (end: TurnEnd): Action =>
  (before, at) =>
    act.endTurn(before, end, momentAt(at));
const takeByEnd =
  (end: Parameters<typeof act.endTakeBy>[1]['end'], isTaken = false): Action =>
  (before, at) =>
    act.endTakeBy(before, { end, isTaken }, momentAt(at));

/** Every action, with the words of the page. */
const ACTIONS: Record<string, Action> = {
  'a message is accepted': (before, at) => act.accept(before, aTurn({ acceptedAt: at })),
  'a failed turn is resumed': (before, at) =>
    act.resume(before, aTurn({ acceptedAt: at, seq: Math.max(1, before.seq) })),
  'a turn is answered': endOf({ kind: 'answered', answer, ...lead }),
  'a turn hands over': endOf(handoff),
  'a turn hands over, with an answer': endOf({ ...handoff, reason: 'contact_details', answer }),
  'a turn is held': endOf({ kind: 'held', holdingText: 'soon', ...lead }),
  'a turn fails': endOf({ kind: 'failed' }),
  'a person escalates': (before, at) => act.escalate(before, { reason: 'angry' }, momentAt(at)),
  'a person sets the lead score': (before, at) =>
    act.escalate(before, { leadScore: before.leadScore + 1 }, momentAt(at)),
  'an operator hands back': (before, at) => act.handBack(before, {}, momentAt(at)),
  'nobody took it: reminder': takeByEnd({ how: 'remind' }),
  'nobody took it: hand-back': takeByEnd(back),
  'nobody took it: nothing': takeByEnd({ how: 'stay' }),
  'its assignee is gone': (before) => act.startTakeBy(before),
  'an operator takes it': () => act.assign('operator'),
  'it is assigned to nobody': (before) => act.unassign(before),
  'an operator replies': (before, at) => act.reply(before, 'hi', momentAt(at)),
  'an operator resolves': (before, at) => act.resolve(before, 'operator', momentAt(at)),
  'an operator reopens': (before) => act.reopen(before),
  'a tag is added': (before) => act.addTag(before, { tag: 'vip', color: null }),
  'a tag is removed': (before) => act.removeTag(before, 'vip'),
  'attributes are set': (before) => act.setAttributes(before, [{ name: 'plan', value: 'pro' }]),
  'it is snoozed': (_before, at) => act.snooze({ until: new Date(at.getTime() + 1_000), at }),
  'a snooze ends': () => act.snooze(null),
  'a note is written': (_before, at) => act.note(at),
};

/** Done twice, these change nothing the second time. */
const ONCE = new Set([
  'a person escalates',
  'an operator resolves',
  'an operator reopens',
  'nobody took it: reminder',
  'nobody took it: hand-back',
  'nobody took it: nothing',
  'it is assigned to nobody',
  'a tag is added',
  'a tag is removed',
  'attributes are set',
]);

const isTurnEnd = (name: string): boolean => name.startsWith('a turn ');
const canHappen = (name: string, before: Conversation): boolean => {
  if (isTurnEnd(name)) return before.waiting.length > 0 && MAY_END[before.status].includes(name);
  if (name === 'a person sets the lead score') return before.status === 'escalated';
  return name !== 'an operator hands back' || before.status !== 'resolved';
};

/** As the writers do: a take-by time for an escalation that nobody has, and no write if nothing changes. */
const withTakeBy = (before: Conversation, effect: Done | null, at: Date): Done | null => {
  if (!effect?.mustBeTaken) return effect;
  const { assigneeId } = { ...before, ...effect.changes };
  if (assigneeId === undefined)
    return { ...effect, changes: { ...effect.changes, takeBy: new Date(at.getTime() + 60) } };
  return Object.keys(effect.changes).length > 0 ? effect : null;
};

const kindsOf = (events: ConversationEvent[]): string[] => events.map(({ event }) => event);
const messagesOf = ({ entries }: Effect): (Message & { seq: number })[] =>
  entries.flatMap(({ seq, messages }) => messages.map((message) => ({ ...message, seq })));

const checkState = (now: Conversation): void => {
  const { status } = now;
  expect(now.resolvedAt !== null).toBe(status === 'resolved');
  expect(now.resolvedBy !== null).toBe(status === 'resolved');
  expect(now.escalatedAt !== null).toBe(now.escalationReason !== null);
  if (status === 'escalated') expect(now.escalatedAt).not.toBeNull();
  if (status === 'open') expect([now.escalatedAt, now.holding]).toEqual([null, null]);
  if (status !== 'escalated')
    expect([now.waitingSince, now.takeBy, now.remindedAt]).toEqual([null, undefined, undefined]);
  expect(now.snoozedAt === undefined).toBe(now.snoozedUntil === undefined);
  const resolutions = (now.resolutions ?? []).map(Number);
  expect(resolutions).toEqual([...new Set(resolutions)].toSorted((a, b) => a - b));
};

const checkStep = (name: string, before: Conversation, effect: Done): void => {
  const after = applied(before, effect);
  const messages = messagesOf(effect);
  const kinds = kindsOf(effect.events);
  // Numbers rise by one, and the last one is the conversation's.
  expect(effect.entries.map(({ seq }) => seq)).toEqual(effect.entries.map((_, nth) => before.seq + 1 + nth));
  expect(after.seq).toBe(before.seq + effect.entries.length);
  // Each event is there if and only if its change is, and in the order of what happened.
  const sent = effect.events.filter(({ event }) => event === 'message.sent').map(({ payload }) => payload);
  expect(sent).toEqual(
    messages
      .filter(({ role }) => role !== 'user')
      .map(({ messageId, seq, role, turnId, language }) => ({
        message_id: messageId,
        turn_id: turnId,
        seq,
        role,
        language: language ?? after.language,
      })),
  );
  expect(kinds.filter((kind) => kind === 'conversation.escalated')).toHaveLength(
    before.status !== 'escalated' && after.status === 'escalated' ? 1 : 0,
  );
  expect(kinds.filter((kind) => kind === 'conversation.resolved')).toHaveLength(
    before.status !== 'resolved' && after.status === 'resolved' ? 1 : 0,
  );
  expect(kinds.includes('message.received')).toBe(name === 'a message is accepted');
  expect(kinds.includes('tag.added')).toBe(after.tags.length > before.tags.length);
  if (kinds.includes('conversation.escalated')) {
    const [escalated, system] = [
      kinds.indexOf('conversation.escalated'),
      messages.findIndex(({ role }) => role === 'system'),
    ];
    expect(escalated).toBe(system - messages.slice(0, system).filter(({ role }) => role === 'user').length);
  }
  // A person handles an escalated conversation: the assistant says its holding text once, or nothing.
  const said = messages.filter(({ role, turnId }) => role === 'assistant' && turnId !== null);
  if (before.status === 'escalated') {
    expect(said.map(({ content }) => content)).toEqual(said.map(() => after.holding?.text));
    if (before.holding) expect(said).toEqual([]);
    if (before.holding && after.status !== 'open') expect(after.holding).toEqual(before.holding);
    if (isTurnEnd(name) && name !== 'a turn fails') expect(after.waitingSince).not.toBeNull();
  }
  // Who has it is nobody's any more once it ends or begins again.
  if (before.status !== after.status && !(before.status === 'open' && after.status === 'escalated'))
    expect(after.assigneeId).toBeUndefined();
};

/** The top-level fields that an action has read. */
const watched = (conversation: Conversation): { seen: Conversation; read: Set<string> } => {
  const read = new Set<string>();
  const get = (target: Conversation, field: string | symbol): unknown => {
    read.add(String(field));
    return target[field as keyof Conversation];
  };
  return { seen: new Proxy(conversation, { get }), read };
};

const TURNS = ['status', 'seq', 'waiting', 'holding', 'waitingSince'];
/** What all writes compare. `holding` and `waitingSince` change only with `seq` or `status`; `language` is a label. */
const COMPARED = new Set(['status', 'seq', 'leadScore', 'tags', 'language']);

/** Lets an action happen, and checks it. Returns the conversation after it, or the same if nothing changes. */
const happens = (now: Conversation, name: string, at: Date): Conversation => {
  const action = ACTIONS[name] as Action;
  if (!canHappen(name, now)) {
    if (isTurnEnd(name) || name === 'an operator hands back')
      expect(() => action(now, at)).toThrow(/^(only a head can end|a turn cannot end|A field of the request)/);
    return now;
  }
  const before = structuredClone(now);
  const effect = withTakeBy(now, action(now, at), at);
  expect(now).toEqual(before);
  if (!effect) return now;
  checkStep(name, now, effect);
  const after = applied(now, effect);
  checkState(after);
  if (ONCE.has(name)) expect(withTakeBy(after, action(after, at), at)).toBeNull();
  return after;
};

test('whatever happens in whatever order, state, messages and events agree', () => {
  let steps = 0;
  let happened = 0;
  const step = fc.record({ name: fc.constantFrom(...Object.keys(ACTIONS)), ms: fc.integer({ min: 0, max: 50 }) });
  const sequence = fc.array(step, { minLength: 1, maxLength: 40 });

  fc.assert(
    fc.property(sequence, (all) => {
      let now = applied(aConversation(), act.accept(null, aTurn()));
      let at = 0;
      for (const { name, ms } of all) {
        at += ms;
        const after = happens(now, name, new Date(at));
        steps += 1;
        if (after !== now) happened += 1;
        now = after;
      }
    }),
    { numRuns: RUNS, seed },
  );

  expect(happened).toBeGreaterThan(steps / 3);
});

/** A conversation in each state, with everything that the state may have. */
const IN: Record<Status, Conversation> = (() => {
  const at = new Date(1_000);
  const open = {
    ...aConversation(),
    seq: 3,
    assigneeId: 'someone',
    tags: [{ tag: 'old', color: null }],
    waiting: [aTurn()],
  };
  const escalated = applied(open, act.escalate(open, {}, momentAt(at)) as Effect);
  const resolved = applied(escalated, act.resolve(escalated, 'operator', momentAt(at)) as Effect);
  return { open, escalated: { ...escalated, takeBy: at }, resolved: { ...resolved, assigneeId: 'someone' } };
})();
const LATER = new Date(2_000);

test('an action depends on no field that its write does not compare', () => {
  const undeclared = Object.entries(ACTIONS).flatMap(([name, action]) =>
    (Object.keys(IN) as Status[])
      .filter((status) => canHappen(name, IN[status]))
      .flatMap((status) => {
        const conversation = { ...IN[status], ...(name === 'its assignee is gone' && { takeBy: undefined }) };
        const { seen, read } = watched(conversation);
        const effect = action(seen, LATER);
        const compared = new Set([...(isTurnEnd(name) ? TURNS : COMPARED), ...(effect?.dependsOn ?? [])]);
        return effect
          ? [...read].filter((field) => !compared.has(field)).map((field) => `${name}, ${status}: ${field}`)
          : [];
      }),
  );

  expect(undeclared).toEqual([]);
});

/** What all that reopening resets is called on the page. */
const RESET = Object.keys(act.reopen({ status: 'resolved' })?.changes ?? {}).filter(
  (field) => field !== 'status' && field !== 'assigneeId',
);

const fieldsOf = ({ changes, mustBeTaken }: Effect): string => {
  const all = Object.entries(changes).filter(([field]) => field !== 'status' && field !== 'seq');
  const initial: Record<string, unknown> = initialState();
  const isReset = RESET.every((field) => field in changes);
  const shown = all.filter(([field, value]) => !(isReset && RESET.includes(field) && value === initial[field]));
  const names = shown.map(([field, value]) => (value === undefined ? `−${field}` : field)).toSorted();
  return [...(isReset ? ['reset'] : []), ...names, ...(mustBeTaken ? ['takeBy?'] : [])].join(', ') || '–';
};
const saidIn = (effect: Effect): string =>
  effect.entries.map(({ messages }) => messages.map(({ role }) => role).join(' + ')).join(', ') || '–';

const cellsOf = (before: Conversation | null, effect: Effect): string => {
  const status = effect.changes.status ?? before?.status;
  const events = kindsOf(effect.events).map((kind) => kind.replace('conversation.', '').replace('message.', ''));
  return [status === before?.status ? '–' : status, fieldsOf(effect), saidIn(effect), events.join(', ') || '–'].join(
    ' | ',
  );
};

const tableOf = (): string[] => {
  const created = act.accept(null, aTurn());
  const known = { ...created, changes: { ...created.changes } };
  for (const field of ['leadBecause', 'leadScore', 'recent', 'seq', 'storedTo', 'tags', 'texts'] as const)
    delete known.changes[field];
  const rows = [`| a session’s first message is accepted | – | ${cellsOf(null, known)} |`];
  for (const [name, action] of Object.entries(ACTIONS)) {
    const byCells = new Map<string, Status[]>();
    for (const status of Object.keys(IN) as Status[]) {
      if (!canHappen(name, IN[status])) continue;
      const before = { ...IN[status], ...(name === 'its assignee is gone' && { takeBy: undefined }) };
      if (name === 'a tag is removed') before.tags = [{ tag: 'vip', color: null }];
      const effect = action(before, LATER);
      if (!effect) continue;
      const cells = cellsOf(before, effect);
      byCells.set(cells, [...(byCells.get(cells) ?? []), status]);
    }
    for (const [cells, statuses] of byCells) {
      const from = statuses.length === 3 ? 'any' : statuses.join(', ');
      rows.push(`| ${name} | ${from} | ${cells} |`);
    }
  }
  return rows;
};

test('the table of docs/design.md says what each action does', () => {
  const rows = tableOf();
  const page = readFileSync(new URL('../../docs/design.md', import.meta.url), 'utf8');
  const [, section = ''] = page.split('\n## Actions\n');
  const [, ...stated] = (section.split('\n## ')[0] ?? '').split('\n').filter((line) => line.startsWith('| '));

  expect(stated).toEqual(rows);
  const tried = Object.values(ACTIONS).flatMap((action) => /\bact\.(\w+)/.exec(String(action))?.[1] ?? []);
  expect(new Set(tried)).toEqual(new Set(Object.keys(act)));
});
