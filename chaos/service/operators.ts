import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../../test/kit/random.ts';
import { describeBreak } from './client.ts';
import type { Acted, Histories } from './history.ts';

const EVERY_MS = 120;
const PATIENCE_MS = 20_000;
/** Every so many actions, a conversation is erased. */
const ERASE_EVERY = 60;

type Action = Acted['action'];

export type OperatorsOptions = {
  api: () => string;
  /** An operator token with the scope `manage`. */
  token: string;
  keyOf: (assistantId: string) => string;
  random: Random;
  histories: Histories;
  isOver: () => boolean;
};

const COMMON: Action[] = ['escalate', 'reply', 'reply', 'hand back', 'resolve', 'tag'];

/** Operators who escalate, answer, hand back, resolve, tag and erase random conversations until the run is over. */
export const operate = async (options: OperatorsOptions): Promise<void> => {
  const { api, token, keyOf, random, histories, isOver } = options;

  const callOf = (action: Action, conversationId: string, content: string) => {
    const one = `/operator/v1/conversations/${conversationId}`;
    const calls = {
      escalate: { path: `${one}/escalate`, body: {} },
      reply: { path: `${one}/replies`, body: { content } },
      'hand back': { path: `${one}/hand-back`, body: {} },
      resolve: { path: `${one}/resolve`, body: {} },
      tag: { path: `${one}/tags`, body: { tag: content.slice(0, 50) } },
      erase: { path: `/api/v1/conversations/${conversationId}`, body: undefined },
    };
    return calls[action];
  };

  const act = async (action: Action, session: string, number: number): Promise<void> => {
    const known = histories.sessions.get(session);
    if (!known?.conversationId || known.erased) return;
    const { conversationId, assistantId } = known;
    const content = `operator ${number}`;
    const { path, body } = callOf(action, conversationId, content);
    const acted: Acted = { action, session, conversationId, status: null, content, at: performance.now() };
    if (action === 'erase') known.erased = true; // the visitor stops: the session could begin anew under another id
    histories.acted.push(acted);
    acted.status = await fetch(`${api()}${path}`, {
      method: action === 'erase' ? 'DELETE' : 'POST',
      headers: {
        Authorization: `Bearer ${action === 'erase' ? keyOf(assistantId) : token}`,
        ...(body && { 'Content-Type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(PATIENCE_MS),
    }).then(
      async (response) => {
        await response.arrayBuffer();
        return response.status;
      },
      (cause: unknown) => {
        acted.failure = describeBreak(cause);
        return null;
      },
    );
  };

  for (let number = 1; !isOver(); number += 1) {
    const names = [...histories.sessions.keys()];
    const session = names[random.below(names.length)];
    const action = number % ERASE_EVERY === 0 ? 'erase' : (COMMON[random.below(COMMON.length)] as Action);
    if (session !== undefined) await act(action, session, number);
    await sleep(EVERY_MS);
  }
};

/** Erases again what an operator wanted to erase and may not have erased. Called after the last fault. */
export const finishErasures = async ({ api, keyOf, histories }: OperatorsOptions): Promise<void> => {
  for (const { conversationId, assistantId, erased } of histories.sessions.values()) {
    if (!erased || !conversationId) continue;
    const headers = { Authorization: `Bearer ${keyOf(assistantId)}` };
    await fetch(`${api()}/api/v1/conversations/${conversationId}`, { method: 'DELETE', headers });
  }
};
