import { isDeepStrictEqual } from 'node:util';
import type { ReplySource, SuggestedAction } from '../assistants/suggested-action.ts';
import { invalid } from '../platform/process/errors.ts';
import { type ConversationEvent, truncateContent } from './event.ts';
import {
  type AttributeChange,
  type Entry,
  type Holding,
  MAX_PENDING,
  mergeAttributes,
  type Message,
  type PendingTurn,
  type RecentTurn,
  type Status,
  type StoredConversation,
  type Tag,
} from './conversation.ts';

// What each action does to a conversation (docs/design.md, Actions). Nothing here reads, writes or asks for the time: the
// other files of this folder make the updates, and compare in their filters what the action has read.

/** The fields that an action changes. `undefined` removes a field. */
type Changes = Partial<StoredConversation>;

export type Effect = {
  changes: Changes;
  /** New final messages. `changes` has the last one's number. */
  entries: Entry[];
  /** What is announced, in this order. */
  events: ConversationEvent[];
  /** What must be unchanged, beside the fields that every write compares. */
  dependsOn: (keyof StoredConversation)[];
  /** True if somebody must take the escalation now. Who has it, and how long that may take, is decided elsewhere. */
  mustBeTaken: boolean;
};

/** The effect of a visitor's message: `pending` is the last of the pending turns. */
export type Arrived = Effect & { pending: PendingTurn };
/** The effect of a turn's end: the head leaves the pending turns as this finished one. */
export type Ended = Effect & { finished: RecentTurn };

/** When an action happens, and the ids of the messages that it may add. */
export type Moment = { at: Date; ids: readonly [string, string] };

export type HandoffReason = 'user_requested' | 'low_confidence' | 'engine_error' | 'budget_used_up' | 'contact_details';

/** An engine's reply, and the state that it leaves in the conversation. */
export type Answer = {
  text: string;
  language: string;
  suggestedActions: SuggestedAction[];
  sources?: ReplySource[];
  why: Record<string, unknown>;
  lowConfidenceStreak: number;
  engineErrorStreak: number;
};

/**
 * How the head ends. `answered`: with the engine's reply. `handoff`: the assistant escalates, and the holding text is
 * the reply; with an `answer`, this is the reply, and the holding text comes with the visitor's next message. `held`: the
 * conversation is already escalated. `failed`: three tries failed because of errors in this service, and the next turn
 * becomes the head.
 */
export type TurnEnd =
  | { kind: 'answered'; answer: Answer; leadScore: number; leadBecause: string[] }
  | {
      kind: 'handoff';
      reason: HandoffReason;
      holdingText: string;
      answer?: Answer;
      leadScore: number;
      leadBecause: string[];
      why: Record<string, unknown>;
    }
  | { kind: 'held'; holdingText: string; leadScore: number; leadBecause: string[] }
  | { kind: 'failed' };

/** What happens to an escalation that nobody took in time. `said` is the sentence for the visitor. */
export type TakeByEnd = { how: 'remind' | 'stay' } | { how: 'hand_back'; said: string };

/** The fields that reopening resets (docs/contract.md, States). */
const REOPENED = {
  status: 'open' as const,
  escalatedAt: null,
  escalationReason: null,
  resolvedAt: null,
  resolvedBy: null,
  waitingSince: null,
  holding: null,
  lowConfidenceStreak: 0,
  engineErrorStreak: 0,
};
const UNASSIGNED = { assigneeId: undefined };
const TAKEN = { takeBy: undefined, remindedAt: undefined };

/** The fields of a new conversation. All fields are set, so that no later write must check whether a field exists. */
export const initialState = () => ({
  ...REOPENED,
  leadScore: 0,
  leadBecause: [],
  tags: [],
  seq: 0,
  storedTo: 0,
  recent: [],
  texts: {},
});

/** Fields that only operators see. Changing them does not set `updatedAt`, because callers list conversations by it. */
const INTERNAL: ReadonlySet<string> = new Set<keyof StoredConversation>([
  'assigneeId',
  'notedAt',
  'remindedAt',
  'snoozedAt',
  'snoozedUntil',
  'takeBy',
  'waitingSince',
]);
export const isVisible = ({ changes }: Effect): boolean => Object.keys(changes).some((field) => !INTERNAL.has(field));

/**
 * The `message.sent` events of these messages. Visitor messages have none. A message without a language has the
 * language of the conversation.
 */
const sentEvents = (entries: Entry[], language: string): ConversationEvent[] =>
  entries.flatMap(({ seq, messages }) =>
    messages.flatMap(({ messageId, turnId, role, language: own }): ConversationEvent[] => {
      if (role === 'user') return [];
      const payload = { message_id: messageId, turn_id: turnId, seq, role, language: own ?? language };
      return [{ event: 'message.sent', payload }];
    }),
  );

const change = (changes: Changes, rest: Partial<Effect> = {}): Effect => ({
  changes,
  entries: [],
  events: [],
  dependsOn: [],
  mustBeTaken: false,
  ...rest,
});

type Said = Pick<Message, 'messageId' | 'role' | 'content'> & { language?: string };

/** Adds messages that belong to no turn. Each gets the next number. */
const say = (before: Pick<StoredConversation, 'seq' | 'language'>, createdAt: Date, messages: Said[]) => {
  const entries = messages.map(
    (message, nth): Entry => ({
      seq: before.seq + 1 + nth,
      messages: [{ turnId: null, language: null, ...message, createdAt }],
    }),
  );
  return { seq: before.seq + entries.length, entries, events: sentEvents(entries, before.language) };
};

const HANDOFF = 'Handed off to a human: ';
const HAND_BACK = 'Handed back to the assistant';

/** What a system message records. */
export const readSystemMessage = (
  content: string,
): { kind: 'handoff'; reason: string } | { kind: 'handBack' } | null => {
  if (content.startsWith(HANDOFF)) return { kind: 'handoff', reason: content.slice(HANDOFF.length) };
  return content.startsWith(HAND_BACK) ? { kind: 'handBack' } : null;
};

/** What the reply to a visitor's message answers: its text, after the texts that were answered together with it. */
export const askedIn = (entries: Entry[], visitor: Message): string =>
  entries
    .flatMap(({ messages }) => messages.filter(({ mergedInto }) => mergedInto?.messageId === visitor.messageId))
    .concat(visitor)
    .map(({ content }) => content)
    .join('\n');

const escalated = (reason: string, leadScore: number, language: string): ConversationEvent => ({
  event: 'conversation.escalated',
  payload: { reason, lead_score: leadScore, language },
});

/** How many resolutions are kept: more than happen between two rounds of the projection, which counts them. */
const KEPT = 20;

/** Adds a resolution. Its time is later than all earlier ones, because the projection counts only later times. */
const withResolution = ({ resolutions: before = [] }: Pick<StoredConversation, 'resolutions'>, now: Date): Date[] => {
  const last = before.at(-1)?.getTime() ?? 0;
  return [...before, new Date(Math.max(now.getTime(), last + 1))].slice(-KEPT);
};

const MAX_TAGS = 50;

/** How a turn may end. While a person handles the conversation, the assistant does not answer. */
const ENDS: Record<Status, TurnEnd['kind'][]> = {
  open: ['answered', 'handoff', 'failed'],
  escalated: ['held', 'failed'],
  resolved: ['answered', 'failed'],
};

/** Turns that are answered together have as much text as one message may have, because an engine reads it as one. */
const TOGETHER_CHARS_MAX = 8_000;

/**
 * The first pending turns, which are answered together: each came while its assistant still waited for it. While a
 * person handles the conversation, no turn waits for another.
 */
export const togetherIn = ({ status, waiting }: Part<'status' | 'waiting'>): PendingTurn[] => {
  const [head] = waiting;
  const atLatest = status === 'escalated' ? undefined : head?.quick?.atLatest;
  let chars = 0;
  const next = waiting.findIndex(({ acceptedAt, message, quick }, nth) => {
    chars += message.length;
    const until = waiting[nth - 1]?.quick?.until;
    const isTogether = atLatest && quick && until && acceptedAt <= until && acceptedAt <= atLatest;
    return nth > 0 && !(isTogether && chars <= TOGETHER_CHARS_MAX);
  });
  return next === -1 ? waiting : waiting.slice(0, next);
};

/** Until when the first pending turns wait for another one. Null: they are answered at once. */
export const waitsUntil = (before: Part<'status' | 'waiting'>): Date | null => {
  const { status, waiting } = before;
  const together = togetherIn(before);
  const atLatest = together[0]?.quick?.atLatest;
  const until = together.at(-1)?.quick?.until;
  const isFull = together.length < waiting.length || waiting.length >= MAX_PENDING;
  if (status === 'escalated' || !atLatest || !until || isFull) return null;
  return until < atLatest ? until : atLatest;
};

const heardOf = ({ messageId, turnId, message: content, language, keyId, acceptedAt }: PendingTurn): Message => {
  const key = keyId !== undefined && { keyId };
  return { messageId, turnId, role: 'user', content, language, ...key, createdAt: acceptedAt };
};

type Reply = Pick<Message, 'content' | 'language' | 'suggestedActions' | 'sources' | 'why'>;

const spokenOf = ({ text: content, language, suggestedActions, sources = [], why }: Answer): Reply => ({
  content,
  language,
  ...(suggestedActions.length > 0 && { suggestedActions }),
  ...(sources.length > 0 && { sources }),
  why,
});

/** The reply of an ended turn. Null if it failed, or if the holding text of the escalation answers it. */
const replyOf = (end: TurnEnd, { language }: PendingTurn, holding: Holding | null): Reply | null => {
  if (end.kind === 'failed') return null;
  if (end.kind === 'answered') return spokenOf(end.answer);
  if (end.kind === 'handoff')
    return end.answer ? spokenOf(end.answer) : { content: end.holdingText, language, why: end.why };
  // The holding text is stored once for each escalation. This text also answers later visitor messages.
  return holding ? null : { content: end.holdingText, language };
};

const stateAfter = (end: TurnEnd, { at, waitingSince }: { at: Date; waitingSince: Date }): Changes => {
  if (end.kind === 'failed') return {};
  const lead = { leadScore: end.leadScore, leadBecause: end.leadBecause };
  if (end.kind === 'held') return { waitingSince, ...lead };
  if (end.kind === 'answered') {
    const { lowConfidenceStreak, engineErrorStreak } = end.answer;
    return { lowConfidenceStreak, engineErrorStreak, ...lead };
  }
  const { reason: escalationReason } = end;
  const streaks = { lowConfidenceStreak: 0, engineErrorStreak: 0 };
  return { status: 'escalated', escalatedAt: at, escalationReason, waitingSince, ...streaks, ...lead };
};

type Whole = Pick<StoredConversation, 'status' | 'seq' | 'language'>;
type Part<Field extends keyof StoredConversation> = Pick<StoredConversation, Field>;
type Ending = Part<'status' | 'seq' | 'holding' | 'waitingSince' | 'waiting'>;

/**
 * One pure function for each action. `before` is what was read. Null means that the conversation is already as the
 * action wants it: nothing is written, and nothing announced.
 */
export const act = {
  /** A visitor's message is accepted. `before` is null if it creates the conversation. */
  accept: (before: Part<'status'> | null, pending: PendingTurn): Arrived => {
    const { language, message } = pending;
    const created: ConversationEvent = { event: 'conversation.created', payload: { language } };
    const payload = { role: 'user' as const, content: truncateContent(message), language };
    const events: ConversationEvent[] = [...(before ? [] : [created]), { event: 'message.received', payload }];
    const state = before ? act.reopen(before)?.changes : initialState();
    return { ...change({ ...state, language }, { events }), pending };
  },

  /** A failed turn is pending again, under its old id. Its visitor message has its number, and was announced. */
  resume: (before: Part<'status'>, pending: PendingTurn): Arrived => ({
    ...(act.reopen(before) ?? change({})),
    pending,
  }),

  /** The head ends: its messages get the next number, and the system message of a handoff the one after. */
  endTurn: (before: Ending, end: TurnEnd, { at, ids: [messageId, handoffId] }: Moment): Ended => {
    const { status, holding } = before;
    const [turn] = before.waiting;
    if (!turn) throw new Error('only a head can end');
    if (!ENDS[status].includes(end.kind)) throw new Error(`a turn cannot end ${end.kind} while ${status}`);
    const { turnId, language, dedupeKey } = turn;
    const reply = replyOf(end, turn, holding);
    const heldBy = end.kind === 'held' && holding ? { messageId: holding.messageId, seq: holding.seq } : null;
    const key = turn.keyId !== undefined && { keyId: turn.keyId };
    const spoken: Message[] = [];
    // The visitor's message of a resumed turn is in another entry.
    if (turn.seq === undefined) spoken.push({ ...heardOf(turn), ...(heldBy && { heldBy }) });
    if (reply) {
      const own = { messageId, turnId, role: 'assistant' as const, createdAt: at };
      spoken.push({ ...own, ...(turn.seq !== undefined && key), ...reply });
    }
    const seq = spoken.length > 0 ? before.seq + 1 : before.seq;
    const said = spoken.length > 0 ? [{ seq, messages: spoken }] : [];
    const system = { messageId: handoffId, role: 'system' as const };
    const handoff =
      end.kind === 'handoff' ? say({ seq, language }, at, [{ ...system, content: `${HANDOFF}${end.reason}` }]) : null;
    const isHolding = end.kind === 'held' || (end.kind === 'handoff' && !end.answer);
    return {
      changes: {
        seq: handoff?.seq ?? seq,
        ...(reply && isHolding && { holding: { messageId, seq, text: reply.content, language } }),
        ...stateAfter(end, { at, waitingSince: before.waitingSince ?? turn.acceptedAt }),
      },
      entries: [...said, ...(handoff?.entries ?? [])],
      events: [
        ...sentEvents(said, language),
        ...(end.kind === 'handoff' ? [escalated(end.reason, end.leadScore, language)] : []),
        ...(handoff?.events ?? []),
      ],
      // The take-by time is decided for this assignee.
      dependsOn: handoff ? ['assigneeId'] : [],
      mustBeTaken: handoff !== null,
      finished: {
        turnId,
        messageId: turn.messageId,
        ...(dedupeKey !== undefined && { dedupeKey }),
        outcome: end.kind === 'failed' ? 'failed' : 'answered',
        seq: turn.seq ?? seq,
        ...(reply && { replySeq: seq, replyMessageId: messageId }),
        ...(heldBy && { replySeq: heldBy.seq, replyMessageId: heldBy.messageId }),
        finishedAt: at,
        ...(turn.async && { async: true }),
      },
    };
  },

  /** A caller or an operator escalates. A given lead score replaces the stored one; the first reason is kept. */
  escalate: (
    before: Whole & Part<'leadScore'>,
    { reason = 'manual', leadScore = before.leadScore }: { reason?: string; leadScore?: number },
    { at, ids: [messageId] }: Moment,
  ): Effect | null => {
    if (before.status === 'escalated') return leadScore === before.leadScore ? null : change({ leadScore });
    const said = say(before, at, [{ messageId, role: 'system', content: `${HANDOFF}${reason}` }]);
    const { seq, entries } = said;
    // Somebody who was assigned while the conversation was open has taken it.
    const assignee = before.status === 'resolved' && UNASSIGNED;
    const now = { status: 'escalated' as const, escalatedAt: at, escalationReason: reason, waitingSince: at };
    const events = [escalated(reason, leadScore, before.language), ...said.events];
    const changes = { ...REOPENED, ...now, ...assignee, leadScore, seq };
    return change(changes, { entries, events, dependsOn: ['assigneeId'], mustBeTaken: true });
  },

  /** The assistant answers again. `said`: the sentence for the visitor if nobody took the conversation in time. */
  handBack: (before: Whole, { said }: { said?: string }, { at, ids }: Moment): Effect | null => {
    const { status, language } = before;
    if (status === 'open') return null;
    if (status === 'resolved') throw invalid('status', 'not_escalated', 'must be escalated before a hand-back');
    const messages: Said[] = [{ messageId: ids[0], role: 'system', content: HAND_BACK }];
    if (said !== undefined) messages.push({ messageId: ids[1], role: 'assistant', content: said, language });
    const { seq, ...spoken } = say(before, at, messages);
    return change({ ...REOPENED, ...TAKEN, ...UNASSIGNED, seq }, spoken);
  },

  /** The take-by time is over. Nothing happens if it was removed or set again meanwhile. */
  endTakeBy: (
    before: Whole & Part<'takeBy'>,
    { end, isTaken }: { end: TakeByEnd; isTaken: boolean },
    moment: Moment,
  ): Effect | null => {
    const { status, takeBy } = before;
    if (!takeBy || takeBy > moment.at) return null;
    const dependsOn: Effect['dependsOn'] = ['takeBy', 'assigneeId'];
    if (status !== 'escalated' || end.how === 'stay' || isTaken) return change(TAKEN, { dependsOn });
    if (end.how !== 'hand_back') return change({ takeBy: undefined, remindedAt: moment.at }, { dependsOn });
    const back = act.handBack(before, end, moment);
    return back && { ...back, dependsOn };
  },

  /** Who has the escalation can no longer take it. So somebody must, as if it had been escalated now. */
  startTakeBy: ({ status, takeBy, remindedAt }: Part<'status' | 'takeBy' | 'remindedAt'>): Effect | null => {
    if (status !== 'escalated' || takeBy || remindedAt) return null;
    return change({}, { dependsOn: ['takeBy', 'remindedAt', 'assigneeId'], mustBeTaken: true });
  },

  /** An operator takes the conversation. This depends on nothing that was read. */
  assign: (assigneeId: string): Effect => change({ assigneeId, ...TAKEN }),

  /** Nobody has the conversation any more. An escalation must then be taken again. */
  unassign: ({ status, assigneeId }: Part<'status' | 'assigneeId'>): Effect | null =>
    assigneeId === undefined
      ? null
      : change(UNASSIGNED, { dependsOn: ['assigneeId'], mustBeTaken: status === 'escalated' }),

  /** A message of an operator: the visitor no longer waits. The status stays. */
  reply: (before: Whole, content: string, { at, ids: [messageId] }: Moment): Effect => {
    const { seq, ...spoken } = say(before, at, [{ messageId, role: 'operator', content }]);
    return change({ seq, waitingSince: null, ...TAKEN }, spoken);
  },

  resolve: (before: Part<'status' | 'resolutions'>, operatorId: string, { at }: Moment): Effect | null => {
    if (before.status === 'resolved') return null;
    const resolutions = withResolution(before, at);
    const now = { status: 'resolved' as const, resolvedAt: at, resolvedBy: operatorId, waitingSince: null };
    const events: ConversationEvent[] = [{ event: 'conversation.resolved', payload: { resolved_by: operatorId } }];
    return change({ ...now, resolutions, ...TAKEN, ...UNASSIGNED }, { events, dependsOn: ['resolutions'] });
  },

  reopen: ({ status }: Part<'status'>): Effect | null =>
    status === 'resolved' ? change({ ...REOPENED, ...UNASSIGNED }) : null,

  addTag: ({ tags }: Part<'tags'>, { tag, color }: Tag): Effect | null => {
    const known = tags.find((one) => one.tag === tag);
    if (known?.color === color) return null;
    if (known) return change({ tags: tags.map((one) => (one === known ? { tag, color } : one)) });
    if (tags.length >= MAX_TAGS) throw invalid('tag', 'too_many', `a conversation has at most ${MAX_TAGS} tags`);
    return change({ tags: [...tags, { tag, color }] }, { events: [{ event: 'tag.added', payload: { tag, color } }] });
  },

  removeTag: ({ tags }: Part<'tags'>, tag: string): Effect | null =>
    tags.some((one) => one.tag === tag) ? change({ tags: tags.filter((one) => one.tag !== tag) }) : null,

  /** Sets and removes attributes. They are announced to nobody. */
  setAttributes: ({ attributes: stored = [] }: Part<'attributes'>, changed: AttributeChange[]): Effect | null => {
    const attributes = mergeAttributes(stored, changed);
    return isDeepStrictEqual(attributes, stored) ? null : change({ attributes }, { dependsOn: ['attributes'] });
  },

  /** Null ends the snooze. This depends on nothing that was read. */
  snooze: (snooze: { until: Date; at: Date } | null): Effect =>
    change({ snoozedUntil: snooze?.until, snoozedAt: snooze?.at }),

  /** The notes have changed. This depends on nothing that was read. */
  note: (notedAt: Date): Effect => change({ notedAt }),
};

/**
 * The first `count` turns end together: the reply is that of the last one. Each message gets its own number. A turn
 * that fails does so alone.
 */
export const endTogether = (
  before: Ending,
  { end, count }: { end: TurnEnd; count: number },
  moment: Moment,
): Ended[] => {
  if (end.kind === 'failed' || count === 1) return [act.endTurn(before, end, moment)];
  const { seq, waiting } = before;
  const merged = waiting.slice(0, count - 1);
  const last = act.endTurn({ ...before, seq: seq + merged.length, waiting: waiting.slice(merged.length) }, end, moment);
  const { messageId, replySeq, replyMessageId } = last.finished;
  if (replySeq === undefined || replyMessageId === undefined) throw new Error('an ended turn needs a reply');
  const ended = merged.map((turn, nth): Ended => {
    const own = seq + 1 + nth;
    const message = { ...heardOf(turn), mergedInto: { messageId, replyMessageId, replySeq } };
    const { dedupeKey, async } = turn;
    return {
      ...change({ seq: own }, { entries: [{ seq: own, messages: [message] }] }),
      finished: {
        turnId: turn.turnId,
        messageId: turn.messageId,
        ...(dedupeKey !== undefined && { dedupeKey }),
        outcome: 'answered',
        seq: own,
        replySeq,
        replyMessageId,
        finishedAt: moment.at,
        ...(async && { async }),
        mergedInto: messageId,
      },
    };
  });
  return [...ended, last];
};

/** The conversation after an action, as far as it was read. */
export const applied = <Before extends Part<'waiting'>>(
  before: Before,
  { changes, ...turns }: Effect & { pending?: PendingTurn; finished?: RecentTurn },
): Before => {
  const left = turns.finished ? before.waiting.slice(1) : before.waiting;
  return { ...before, ...changes, waiting: turns.pending ? [...left, turns.pending] : left };
};
