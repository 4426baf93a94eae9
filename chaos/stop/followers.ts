import { setTimeout as sleep } from 'node:timers/promises';
import type { Histories } from '../service/history.ts';
import { describeBreak } from '../service/client.ts';
import type { Random } from '../../test/kit/random.ts';

const WAIT_S = 20;
const PATIENCE_MS = 45_000;
const AGAIN_AFTER_MS = 200;

/** One long poll: its status, or why it has none. */
export type Followed = { status: number | null; failure?: string };

type Options = {
  count: number;
  api: () => string;
  keyOf: (assistantId: string) => string;
  random: Random;
  histories: Histories;
  isOver: () => boolean;
};

/** Callers who wait for new messages of random conversations by long polls. */
export const follow = async ({ count, api, keyOf, random, histories, isOver }: Options): Promise<Followed[]> => {
  const followed: Followed[] = [];

  const poll = async (url: string, apiKey: string): Promise<Followed> => {
    try {
      const response = await fetch(url, {
        headers: { Authorization: `Bearer ${apiKey}` },
        signal: AbortSignal.timeout(PATIENCE_MS),
      });
      await response.arrayBuffer();
      return { status: response.status };
    } catch (cause) {
      return { status: null, failure: describeBreak(cause) };
    }
  };

  const followOne = async (): Promise<void> => {
    while (!isOver()) {
      const sessions = [...histories.sessions.values()].filter(({ conversationId }) => conversationId !== null);
      const session = sessions[random.below(sessions.length)];
      if (session) {
        const path = `/api/v1/conversations/${session.conversationId}?after_seq=1000000&wait=${WAIT_S}`;
        followed.push(await poll(`${api()}${path}`, keyOf(session.assistantId)));
      }
      await sleep(AGAIN_AFTER_MS);
    }
  };

  await Promise.all(Array.from({ length: count }, followOne));
  return followed;
};
