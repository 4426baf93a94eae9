import { findContactDetails } from '@parley/understanding';
import type { Assistant } from '../../src/assistants/assistant.ts';
import { closedText, nextOpening } from '../../src/assistants/opening-hours.ts';
import { MAX_SUGGESTED_ACTIONS, SuggestedAction } from '../../src/assistants/suggested-action.ts';
import type { PendingTurn, StoredConversation } from '../../src/conversations/conversation.ts';
import type { Answer, HandoffReason, TurnEnd } from '../../src/conversations/state.ts';
import { serverDate } from '../../src/process/clock.ts';
import { apologyText, type EngineReply, holdingText } from './engines/engine.ts';

/**
 * This many low-confidence replies or engine errors in a row cause an escalation (docs/contract.md, Escalation by the
 * assistant).
 */
const STREAK_TO_HAND_OFF = 2;

type Lead = { leadScore: number; leadBecause: string[] };
type Streaks = Pick<StoredConversation, 'lowConfidenceStreak' | 'engineErrorStreak'>;

/**
 * Everything except the engine's answer that decides how a turn ends. A conversation that was resolved in the meantime
 * is not handed off.
 */
type Circumstances = {
  assistant: Assistant;
  turn: PendingTurn;
  status: StoredConversation['status'];
  streaks: Streaks;
  lead: Lead;
};

/** The holding text. Outside opening hours it also says when somebody answers. */
export const holdingTextOf = ({ holdingText: own, openingHours }: Assistant, language: string): string => {
  const held = own ?? holdingText(language);
  const opening = nextOpening(openingHours, serverDate());
  return opening && openingHours ? `${held} ${closedText(language, opening, openingHours.timeZone)}` : held;
};

const handOff = (
  { assistant, turn, lead }: Pick<Circumstances, 'assistant' | 'turn' | 'lead'>,
  { reason, why }: { reason: HandoffReason; why: Record<string, unknown> },
): Extract<TurnEnd, { kind: 'handoff' }> => ({
  kind: 'handoff',
  reason,
  holdingText: holdingTextOf(assistant, turn.language),
  why,
  ...lead,
});

/** Ends a turn with an answer. Contact details beside the question may hand the conversation to a person. */
const endAnswered = (answer: Answer, { assistant, turn, status, lead }: Circumstances): TurnEnd => {
  const raises = assistant.contactsEscalate && status === 'open' && findContactDetails(turn.message) !== null;
  if (!raises) return { kind: 'answered', answer, ...lead };
  return { ...handOff({ assistant, turn, lead }, { reason: 'contact_details', why: answer.why }), answer };
};

const handoffReasonOf = (
  reply: EngineReply,
  { lowConfidenceStreak }: Streaks,
  canKnow: boolean,
): HandoffReason | null => {
  if (reply.escalate) return reply.escalate;
  return canKnow && reply.low && lowConfidenceStreak + 1 >= STREAK_TO_HAND_OFF ? 'low_confidence' : null;
};

/**
 * Keeps at most five of an engine's suggested actions, and only safe ones, as the rules for knowledge require
 * (docs/contract.md, Suggested actions).
 */
const safeActions = (actions: SuggestedAction[]): SuggestedAction[] =>
  actions.filter((action) => SuggestedAction.safeParse(action).success).slice(0, MAX_SUGGESTED_ACTIONS);

/** Ends a turn with the engine's answer, or with a handoff. */
export const endWithReply = (reply: EngineReply, circumstances: Circumstances & { canKnow: boolean }): TurnEnd => {
  const { assistant, turn, status, streaks, canKnow, lead } = circumstances;
  const reason = status === 'resolved' ? null : handoffReasonOf(reply, streaks, canKnow);
  if (reason) return handOff({ assistant, turn, lead }, { reason, why: reply.why });
  const answer: Answer = {
    text: reply.text,
    language: reply.language,
    suggestedActions: safeActions(reply.suggestedActions),
    ...(reply.sources && { sources: reply.sources }),
    why: reply.why,
    lowConfidenceStreak: canKnow && reply.low ? streaks.lowConfidenceStreak + 1 : 0,
    engineErrorStreak: 0,
  };
  return endAnswered(answer, circumstances);
};

/**
 * Ends a turn after both the engine and its fall-back failed. The visitor gets an apology. The second such turn in a
 * row causes a handoff.
 */
export const endWithApology = (circumstances: Circumstances): TurnEnd => {
  const { assistant, turn, status, streaks, lead } = circumstances;
  const why = { engine: 'none', error: 'engine_error' };
  if (status !== 'resolved' && streaks.engineErrorStreak + 1 >= STREAK_TO_HAND_OFF) {
    return handOff({ assistant, turn, lead }, { reason: 'engine_error', why });
  }
  const answer: Answer = {
    text: apologyText(turn.language),
    language: turn.language,
    suggestedActions: [],
    why,
    lowConfidenceStreak: streaks.lowConfidenceStreak,
    engineErrorStreak: streaks.engineErrorStreak + 1,
  };
  return endAnswered(answer, circumstances);
};
