import { at, call } from '../../../api.ts';
import type { ConversationFacts } from '../thread/thread.ts';
import type { Act } from './change.ts';

const REOPENED = {
  status: 'open',
  escalatedAt: null,
  escalationReason: null,
  resolvedAt: null,
  resolvedBy: null,
  waitingSince: null,
  takeBy: null,
  remindedAt: null,
  assigneeId: null,
} as const;

type Tag = ConversationFacts['tags'][number];

/** The actions on a conversation: what they call, and what the page shows before the answer. */
export const actionsOn = (conversationId: string) => {
  const post = (name: string, body?: unknown) => () =>
    call('POST', `${at`/conversations/${conversationId}`}/${name}`, body === undefined ? {} : { body });
  const now = () => new Date().toISOString();

  return {
    escalate: (): Act => ({
      run: post('escalate', {}),
      facts: ({ assigneeId }) => ({
        ...REOPENED,
        assigneeId,
        status: 'escalated',
        escalatedAt: now(),
        escalationReason: 'manual',
        waitingSince: now(),
      }),
    }),
    handBack: (): Act => ({ run: post('hand-back'), facts: () => REOPENED }),
    resolve: (me: string): Act => ({
      run: post('resolve', {}),
      facts: () => ({
        status: 'resolved',
        resolvedAt: now(),
        resolvedBy: me,
        waitingSince: null,
        takeBy: null,
        remindedAt: null,
        assigneeId: null,
      }),
    }),
    reopen: (): Act => ({ run: post('reopen'), facts: () => REOPENED }),
    assign: (operatorId: string | null): Act => ({
      run: post('assign', { operatorId }),
      facts: ({ takeBy, remindedAt }) => ({
        assigneeId: operatorId,
        takeBy: operatorId === null ? takeBy : null,
        remindedAt: operatorId === null ? remindedAt : null,
      }),
    }),
    snooze: (until: Date | null): Act => ({
      run: post('snooze', { until: until?.toISOString() ?? null }),
      facts: () => ({ snoozedUntil: until?.toISOString() ?? null }),
    }),
    addTag: ({ tag, color }: Tag): Act => ({
      run: post('tags', { tag, ...(color !== null && { color }) }),
      facts: ({ tags }) => ({ tags: [...tags.filter((one) => one.tag !== tag), { tag, color }] }),
    }),
    removeTag: (tag: string): Act => ({
      run: () => call('DELETE', at`/conversations/${conversationId}/tags/${tag}`),
      facts: ({ tags }) => ({ tags: tags.filter((one) => one.tag !== tag) }),
    }),
  };
};
