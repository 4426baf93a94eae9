import { mapAtMost } from '../../src/platform/process/slots.ts';
import type { StoredMessage } from '../service/history.ts';
import { readHistory } from '../service/evidence.ts';
import type { LoadedService } from './service.ts';
import type { Told, ToldSession } from './settings.ts';

const READS_AT_ONCE = 8;

type Loaded = Pick<LoadedService, 'door' | 'service'>;

/** What was stored differently from what callers were told. Each list has a few examples for people. */
export type Differences = { sessions: number; turns: number; wrong: Map<string, string[]> };

export const TURN_RULES = [
  'accepted turns without exactly one stored message',
  'accepted turns without exactly one reply',
  'replies that differ from what the caller was told',
  'messages that are stored although they were refused',
  'messages out of order',
] as const;
type Rule = (typeof TURN_RULES)[number];

const judgeSession = (told: ToldSession, stored: StoredMessage[], blame: (rule: Rule, what: string) => void): void => {
  const visitors = stored.filter(({ role }) => role === 'user');
  const byContent = Map.groupBy(visitors, ({ content }) => content);
  const repliesOf = Map.groupBy(
    stored.filter(({ role }) => role === 'assistant'),
    ({ turnId }) => turnId,
  );
  const known = new Set(told.turns.map(([message]) => message));
  for (const { content } of visitors)
    if (!known.has(content)) blame('messages that are stored although they were refused', content);
  let newest = 0;
  for (const [message, end] of told.turns) {
    const [one, ...others] = byContent.get(message) ?? [];
    if (end === 'unknown' && !one) continue;
    if (!one || others.length > 0) {
      blame('accepted turns without exactly one stored message', message);
      continue;
    }
    const replies = repliesOf.get(one.turnId) ?? [];
    if (replies.length !== 1) blame('accepted turns without exactly one reply', message);
    if (typeof end === 'object' && replies[0]?.messageId !== end.messageId)
      blame('replies that differ from what the caller was told', message);
    if ((one.seq ?? 0) <= newest) blame('messages out of order', message);
    newest = one.seq ?? newest;
  }
};

/**
 * Reads every session through the API, and compares what is stored with what its caller was told. Sessions whose turns
 * were all refused have no conversation that their caller could read, so MongoDB is asked for them.
 */
export const verifyTurns = async (told: Told, { door, service }: Loaded): Promise<Differences> => {
  const wrong = new Map<string, string[]>();
  let turns = 0;
  const sessions = Object.entries(told).filter(([, { turns: some }]) => some.length > 0);
  const blameIn =
    (name: string) =>
    (rule: Rule, what: string): void => {
      const list = wrong.get(rule) ?? [];
      list.push(`${name}: ${what}`);
      wrong.set(rule, list);
    };
  const onlyRefused = new Set(Object.keys(told).filter((name) => told[name]?.turns.length === 0));
  const idOf = new Map<string, string>();
  const stored = service.mongo
    .collection<{ sessionId: string; conversationId: string }>('conversations')
    .find({}, { projection: { sessionId: 1, conversationId: 1 } });
  for await (const { sessionId, conversationId } of stored) {
    idOf.set(sessionId, conversationId);
    if (onlyRefused.has(sessionId)) blameIn(sessionId)('messages that are stored although they were refused', 'all');
  }
  await mapAtMost(READS_AT_ONCE, sessions, async ([name, session]) => {
    turns += session.turns.length;
    const conversationId = session.conversationId ?? idOf.get(name) ?? null;
    const api = `http://127.0.0.1:${door.port}`;
    const messages = conversationId === null ? [] : await readHistory(api, door.apiKey, conversationId);
    judgeSession(session, messages, blameIn(name));
  });
  return { sessions: sessions.length, turns, wrong };
};
