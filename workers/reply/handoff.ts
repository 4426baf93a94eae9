import { MAX_SUGGESTED_ACTIONS, SuggestedAction } from '../../src/assistants/suggested-action.ts';
import type { Assistant } from '../../src/assistants/assistant.ts';
import type { Answer, HandoffReason, TurnEnd } from '../../src/turns/end-turn.ts';
import type { StoredConversation, PendingTurn } from '../../src/conversations/conversation.ts';
import type { EngineReply } from './engines/engine.ts';
import { apologyText, holdingText } from './engines/texts.ts';

/** So many in a row, and a person takes over (docs/contract.md, Escalation by the assistant). */
const STREAK_TO_HAND_OFF = 2;

type Lead = { leadScore: number; leadBecause: string[] };
type Streaks = Pick<StoredConversation, 'lowConfidenceStreak' | 'engineErrorStreak'>;

/** What the end of a turn depends on beside the engine. Resolved while its reply was made: kept, and the state stays. */
type Circumstances = {
  assistant: Assistant;
  turn: PendingTurn;
  status: StoredConversation['status'];
  streaks: Streaks;
  lead: Lead;
};

export const holdingTextOf = ({ holdingText: own }: Assistant, language: string): string =>
  own ?? holdingText(language);

const handoffReasonOf = (
  reply: EngineReply,
  { lowConfidenceStreak }: Streaks,
  canKnow: boolean,
): HandoffReason | null => {
  if (reply.escalate) return reply.escalate;
  return canKnow && reply.low && lowConfidenceStreak + 1 >= STREAK_TO_HAND_OFF ? 'low_confidence' : null;
};

/**
 * An engine's hints are checked like those of the knowledge (docs/contract.md, Suggested actions): at most five, none that
 * is not safe to show.
 */
const safeActions = (actions: SuggestedAction[]): SuggestedAction[] =>
  actions.filter((action) => SuggestedAction.safeParse(action).success).slice(0, MAX_SUGGESTED_ACTIONS);

/** The turn's end where an engine replied: its answer, or a handoff by the assistant itself. */
export const endWithReply = (
  reply: EngineReply,
  { assistant, turn, status, streaks, canKnow, lead }: Circumstances & { canKnow: boolean },
): TurnEnd => {
  const reason = status === 'resolved' ? null : handoffReasonOf(reply, streaks, canKnow);
  if (reason)
    return { kind: 'handoff', reason, holdingText: holdingTextOf(assistant, turn.language), why: reply.why, ...lead };
  const answer: Answer = {
    text: reply.text,
    language: reply.language,
    suggestedActions: safeActions(reply.suggestedActions),
    why: reply.why,
    lowConfidenceStreak: canKnow && reply.low ? streaks.lowConfidenceStreak + 1 : 0,
    engineErrorStreak: 0,
  };
  return { kind: 'answered', answer, ...lead };
};

/** The turn's end where even the fall-back failed: a localised apology, the second time in a row a handoff. */
export const endWithApology = ({ assistant, turn, status, streaks, lead }: Circumstances): TurnEnd => {
  const why = { engine: 'none', error: 'engine_error' };
  if (status !== 'resolved' && streaks.engineErrorStreak + 1 >= STREAK_TO_HAND_OFF) {
    return {
      kind: 'handoff',
      reason: 'engine_error',
      holdingText: holdingTextOf(assistant, turn.language),
      why,
      ...lead,
    };
  }
  const answer: Answer = {
    text: apologyText(turn.language),
    language: turn.language,
    suggestedActions: [],
    why,
    lowConfidenceStreak: streaks.lowConfidenceStreak,
    engineErrorStreak: streaks.engineErrorStreak + 1,
  };
  return { kind: 'answered', answer, ...lead };
};
