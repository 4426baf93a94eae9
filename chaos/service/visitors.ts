import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../../test/kit/random.ts';
import type { Cast } from './cast.ts';
import { attempt, type Door } from './client.ts';
import { type Histories, type Sent, type Session, WAYS, type Way } from './history.ts';
import { RETRY_FOR_MS } from './limits.ts';

const AGAIN_AFTER_MS = 200;
/** A visitor waits at most so long before the next message. */
const THINKS_MS = 400;

type Assistant = Pick<Door, 'assistantId' | 'apiKey' | 'channelToken'>;

type VisitorOptions = {
  name: string;
  way: Way;
  assistant: Assistant;
  /** How many messages the visitor sends at once without waiting for the reply. */
  hurry: number;
  /** The longest time between a reply and the next message, in ms. */
  thinksMs?: number | undefined;
  api: () => string;
  random: Random;
  histories: Histories;
  isOver: () => boolean;
};

type Sending = Omit<VisitorOptions, 'hurry' | 'isOver'>;

/** Sends one message, and again until it is answered or the visitor gives up. Records what the visitor was told. */
const send = async (options: Sending, message: string): Promise<Sent> => {
  const { name: session, way, assistant, api, histories } = options;
  const sent: Sent = {
    session,
    way,
    message,
    startedAt: performance.now(),
    endedAt: Number.POSITIVE_INFINITY,
    attempts: [],
    accepted: new Set(),
    told: null,
  };
  histories.sent.push(sent);
  const until = sent.startedAt + RETRY_FOR_MS;
  while (performance.now() < until && !histories.sessions.get(session)?.erased) {
    const order = { way, session, message, key: `${session}-${message}`.replaceAll(' ', '-') };
    const doors = (): Door => ({ url: api(), ...assistant });
    const result = await attempt(order, doors, (turnId) => sent.accepted.add(turnId));
    const told = 'told' in result ? result.told : null;
    sent.attempts.push({ result: 'told' in result ? '200' : result.failed, at: performance.now() });
    if (told) {
      sent.told = told;
      break;
    }
    await sleep(AGAIN_AFTER_MS);
  }
  sent.endedAt = performance.now();
  return sent;
};

const newSession = ({ assistantId }: Assistant): Session => ({ assistantId, conversationId: null, erased: false });

const learnConversation = ({ sessions }: Histories, name: string, told: Sent['told']): void => {
  const session = sessions.get(name);
  if (session) session.conversationId ??= told?.conversationId ?? null;
};

const QUESTIONS = ['When are you open?', 'Do you ship abroad?', 'What does it cost?', 'Where are you?', 'Thanks'];

/**
 * A visitor with one session. Sends numbered messages until the run is over. A visitor in a hurry sends several messages
 * at once; such a visitor uses idempotency keys, because without them a retry after a later answer is a new turn.
 */
export const visit = async (options: VisitorOptions): Promise<void> => {
  const { name, assistant, hurry, thinksMs = THINKS_MS, random, histories, isOver } = options;
  const session = newSession(assistant);
  histories.sessions.set(name, session);
  for (let number = 0; !isOver() && !session.erased; number += hurry) {
    const messages = Array.from(
      { length: hurry },
      (_, index) => `${QUESTIONS[random.below(QUESTIONS.length)]} ${name} m${number + index}`,
    );
    const sent = await Promise.all(messages.map((message) => send(options, message)));
    for (const { told } of sent) learnConversation(histories, name, told);
    await sleep(random.next() * thinksMs);
  }
};

const CROWD = 10;

/**
 * New visitors who send one message each, at the same moment and to the same process, so that the service writes their
 * messages together.
 */
export const visitTogether = async (options: Omit<Sending, 'way'>): Promise<void> => {
  const { name, assistant, api, histories } = options;
  const url = api();
  const all = Array.from({ length: CROWD }, async (_, number) => {
    const session = `${name}-${number}`;
    histories.sessions.set(session, newSession(assistant));
    const one = { ...options, name: session, way: 'json' as const, api: () => url };
    const { told } = await send(one, `When are you open? ${session}`);
    learnConversation(histories, session, told);
  });
  await Promise.all(all);
};

const wayOf = (number: number): Way => WAYS[number % WAYS.length] as Way;

type Load = {
  visitors: number;
  thinksMs?: number;
  cast: Cast;
  histories: Histories;
  random: Random;
  isOver: () => boolean;
};

/** Visitors on all ways in, one session after the other, two thirds of them with the assistant that answers at once. */
export const runVisitors = (
  { visitors, thinksMs, cast, histories, random, isOver }: Load,
  api: () => string,
): Promise<void>[] =>
  Array.from({ length: visitors }, async (_, number) => {
    const way = wayOf(number);
    const assistant = number % 3 === 2 ? cast.slow : cast.quick;
    for (let nth = 0; !isOver(); nth += 1) {
      const name = `s${number}-${nth}`;
      const hurry = way === 'key' ? 3 : 1;
      await visit({ name, way, assistant, hurry, thinksMs, api, random, histories, isOver });
    }
  });
