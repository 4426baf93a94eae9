import type { Acted, Histories, Sent, StoredMessage, Violation } from './history.ts';

/** In the error of a request that a visitor gave up. */
const TIMED_OUT = 'TimeoutError';

type Own = { session: string; sent: Sent[]; acted: Acted[]; stored: StoredMessage[] };
type Rule = (one: Own) => string[];

const visitorMessages = (stored: StoredMessage[]): StoredMessage[] => stored.filter(({ role }) => role === 'user');

const once: Rule = ({ sent, stored }) => {
  const counts = Map.groupBy(visitorMessages(stored), ({ content }) => content);
  return sent.flatMap(({ message, told }) => {
    const count = counts.get(message)?.length ?? 0;
    if (count > 1) return [`"${message}" is stored ${count} times`];
    return told && count === 0 ? [`"${message}" was answered, but is not stored`] : [];
  });
};

const accepted: Rule = ({ sent, stored }) => {
  const contentOf = new Map(visitorMessages(stored).map(({ turnId, content }) => [turnId, content]));
  return sent.flatMap(({ message, accepted: turnIds }) =>
    [...turnIds].flatMap((turnId) =>
      contentOf.get(turnId) === message ? [] : [`"${message}" was accepted as turn ${turnId}, but is not stored as it`],
    ),
  );
};

const toldWhatIsStored: Rule = ({ sent, stored }) => {
  const byId = new Map(stored.map((message) => [message.messageId, message]));
  return sent.flatMap(({ message, told }) => {
    if (!told) return [];
    const reply = byId.get(told.messageId);
    if (!reply) return [`the reply to "${message}" is not stored`];
    if (reply.content !== told.reply) return [`the reply to "${message}" is stored with another text`];
    // A message that a person will answer has no reply of its own; its caller is told the conversation's last reply.
    const { turnId } = visitorMessages(stored).find(({ content }) => content === message) ?? {};
    const own = stored.find((one) => one.role === 'assistant' && one.turnId === turnId);
    return own && own !== reply ? [`"${message}" was told the reply to another message`] : [];
  });
};

const onlyWhatWasSent: Rule = ({ sent, stored }) => {
  const known = new Set(sent.map(({ message }) => message));
  return visitorMessages(stored).flatMap(({ content }) =>
    known.has(content) ? [] : [`"${content}" is stored, but nobody sent it`],
  );
};

const answeredOnce: Rule = ({ stored }) =>
  [...Map.groupBy(stored, ({ turnId }) => turnId)].flatMap(([turnId, messages]) => {
    if (turnId === null) return [];
    const [questions, replies] = ['user', 'assistant'].map(
      (role) => messages.filter((one) => one.role === role).length,
    );
    if (questions !== 1) return [`turn ${turnId} has ${questions} visitor messages`];
    return (replies ?? 0) > 1 ? [`turn ${turnId} has ${replies} replies`] : [];
  });

const isReplyTo = (reply: StoredMessage, visitor: StoredMessage | undefined): boolean =>
  reply.role === 'assistant' &&
  visitor?.role === 'user' &&
  reply.turnId !== null &&
  reply.turnId === visitor.turnId &&
  reply.seq === visitor.seq;

/** Only the two messages of a turn may share a number. */
const numbered: Rule = ({ stored }) => {
  const numbers = stored.filter(({ seq }) => seq !== null);
  const gaps = numbers.flatMap((one, index) => {
    const before = numbers[index - 1];
    const last = before?.seq ?? 0;
    return one.seq === last + 1 || isReplyTo(one, before) ? [] : [`number ${one.seq} follows ${last}`];
  });
  return stored.some(({ seq }) => seq === null) ? [...gaps, 'a message has no number'] : gaps;
};

/** If the response to one message arrived before another message was sent, the first has the smaller number. */
const inOrder: Rule = ({ sent, stored }) => {
  const seqOf = new Map(visitorMessages(stored).map(({ content, seq }) => [content, seq]));
  const told = sent.filter(({ told: reply }) => reply).toSorted((a, b) => a.startedAt - b.startedAt);
  return told.flatMap((later, index) =>
    told.slice(0, index).flatMap((earlier) => {
      if (earlier.endedAt > later.startedAt) return [];
      const [first, second] = [seqOf.get(earlier.message) ?? 0, seqOf.get(later.message) ?? 0];
      return first < second ? [] : [`"${later.message}" (${second}) was sent after "${earlier.message}" (${first})`];
    }),
  );
};

/** The API answers within its own limit of 30 s, even with an error. Visitors wait longer than that. */
const answeredInTime: Rule = ({ sent }) =>
  sent.flatMap(({ message, attempts }) =>
    attempts.some(({ result }) => result.includes(TIMED_OUT))
      ? [`an attempt to send "${message}" had no response`]
      : [],
  );

/** An operator does not repeat a reply, so one that failed may be stored or not. */
const operatorsRepliesOnce: Rule = ({ acted, stored }) => {
  const counts = Map.groupBy(stored, ({ content }) => content);
  return acted.flatMap(({ action, content = '', status }) => {
    if (action !== 'reply') return [];
    const count = counts.get(content)?.length ?? 0;
    if (count > 1) return [`"${content}" is stored ${count} times`];
    return status === 201 && count === 0 ? [`"${content}" was accepted, but is not stored`] : [];
  });
};

const RULES: Record<string, Rule> = {
  'each message is stored once': once,
  'what was accepted is stored': accepted,
  'each caller was told what is stored': toldWhatIsStored,
  'nothing is stored that nobody sent': onlyWhatWasSent,
  'each turn is answered once': answeredOnce,
  "an operator's reply is stored once": operatorsRepliesOnce,
  'numbers have no gaps': numbered,
  'messages keep their order': inOrder,
  'every request has a response in time': answeredInTime,
};

export const TURN_RULES = Object.keys(RULES);

/** Compares what callers sent and were told with what is stored. */
export const judgeTurns = (histories: Histories, stored: Map<string, StoredMessage[]>): Violation[] => {
  const bySession = Map.groupBy(histories.sent, ({ session }) => session);
  const byOperators = Map.groupBy(histories.acted, ({ session }) => session);
  return [...stored].flatMap(([session, messages]) => {
    const own = {
      session,
      sent: bySession.get(session) ?? [],
      acted: byOperators.get(session) ?? [],
      stored: messages,
    };
    return Object.entries(RULES).flatMap(([rule, judge]) => judge(own).map((what) => ({ rule, session, what })));
  });
};
