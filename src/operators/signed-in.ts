import type { Connection } from 'mongoose';
import { type Operator, operatorModel, toOperator } from './operator.ts';
import { isCurrent, type StoredSession, sessionModel, storedIdOf } from './session.ts';

/** A session that a long request was started in. */
export type SessionRef = { sessionId: string; operatorId: string };

/**
 * Reads again whose sessions still exist, for requests that stay open. The answer has one place for each session: its
 * operator as stored now, or null if the session has ended.
 */
export const createFindSignedIn = (connection: Connection) => {
  const [sessions, operators] = [sessionModel(connection), operatorModel(connection)];

  return async (refs: SessionRef[]): Promise<(Operator | null)[]> => {
    const ids = refs.map(({ sessionId }) => storedIdOf(sessionId));
    const [foundSessions, foundOperators] = await Promise.all([
      sessions.find({ _id: { $in: ids } }).lean(),
      operators.find({ _id: { $in: [...new Set(refs.map(({ operatorId }) => operatorId))] } }).lean(),
    ]);
    const sessionById = new Map(foundSessions.map((one) => [one._id, one]));
    const operatorById = new Map(foundOperators.map((one) => [one._id, one]));
    return ids.map((id, at) => {
      const stored = sessionById.get(id);
      const operator = operatorById.get(refs[at]?.operatorId ?? '');
      if (!stored || !operator || operator.disabled) return null;
      const session = stored.session as StoredSession;
      const current = isCurrent(session, stored.expires ?? null) && session.generation === operator.generation;
      return current ? toOperator(operator) : null;
    });
  };
};

export type FindSignedIn = ReturnType<typeof createFindSignedIn>;
