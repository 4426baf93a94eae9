import { LRUCache } from 'lru-cache';
import { baseLanguage } from '../../../../src/turns/language.ts';
import { MAX_SUGGESTED_ACTIONS, type SuggestedAction } from '../../../../src/assistants/suggested-action.ts';
import type { AssistantEngine, AssistantProfile, EngineReply, TurnContext } from '../engine.ts';
import { otherLanguageText, text, type TextKey } from '../texts.ts';
import { findContactDetails } from './contact-details.ts';
import { asksForHuman } from './human-request.ts';
import { buildIndex, type KnowledgeIndex } from './knowledge-index.ts';
import { type Found, searchGroup } from './search.ts';
import { readSmallTalk } from './small-talk.ts';

/** Confidence from which an answer is given; tuned on the tune half of the evaluation set. */
export const DEFAULT_THRESHOLD = 0.55;

export type RetrievalOptions = {
  /** Assistants whose index is kept. */
  maxIndexes?: number;
  /** Entries all kept indexes may hold together. */
  maxEntries?: number;
};

type Kind = 'answer' | 'askBack' | 'unsure' | 'human' | 'contact' | 'noKnowledge' | 'failed' | TextKey;

export const createRetrievalEngine = (options: RetrievalOptions = {}): AssistantEngine => {
  const indexes = new LRUCache<string, KnowledgeIndex>({
    max: options.maxIndexes ?? 200,
    maxSize: options.maxEntries ?? 100_000,
    sizeCalculation: (index) => 1 + index.groups.reduce((sum, group) => sum + group.entries.length, 0),
  });

  const indexOf = (assistant: AssistantProfile): KnowledgeIndex => {
    const key = `${assistant.assistantId}:${assistant.version}`;
    const known = indexes.get(key);
    if (known) return known;
    const built = buildIndex(assistant);
    indexes.set(key, built);
    return built;
  };

  const answerTurn = (turn: TurnContext, startedAt: number): EngineReply => {
    const { assistant, message, language } = turn;
    const threshold = assistant.threshold ?? DEFAULT_THRESHOLD;
    let hits: { entryId: string; score: number }[] = [];
    const say = (kind: Kind, reply: Partial<EngineReply> & { text: string }): EngineReply => ({
      suggestedActions: [],
      confidence: 1,
      low: false,
      language,
      why: {
        engine: 'retrieval',
        kind,
        language: reply.language ?? language,
        hits,
        threshold,
        ms: Math.round((performance.now() - startedAt) * 1000) / 1000,
      },
      ...reply,
    });

    if (asksForHuman(message)) return say('human', { text: text(language, 'holding'), escalate: 'user_requested' });
    const smallTalk = readSmallTalk(message, baseLanguage(language));
    if (smallTalk) return say(smallTalk, { text: text(language, smallTalk) });

    const contact = findContactDetails(message);
    if (assistant.knowledge.length === 0) {
      return contact
        ? say('contact', { text: text(language, 'contactNoted') })
        : say('noKnowledge', { text: text(language, 'noKnowledge') });
    }

    const { groups } = indexOf(assistant);
    const own = groups.filter((group) => group.language === baseLanguage(language));
    const others = groups.filter((group) => group.language !== baseLanguage(language));
    let found: Found | null = null;
    for (const group of [...own, ...others]) {
      const next = searchGroup(message, group);
      if ((next.hits[0]?.score ?? 0) > (found?.hits[0]?.score ?? 0)) found = next;
      if ((found?.hits[0]?.score ?? 0) >= threshold) break;
    }
    const best = found?.hits[0];
    const entry = best ? found?.group.entries[best.entry] : undefined;
    hits = (found?.hits ?? []).map((hit) => ({
      entryId: found?.group.entries[hit.entry]?.entryId ?? '',
      score: Math.round(hit.score * 100) / 100,
    }));
    const confidence = best?.score ?? 0;
    if (entry && confidence >= threshold) {
      const answerLanguage = entry.language ?? found?.group.language ?? language;
      const foreign = baseLanguage(answerLanguage) !== baseLanguage(language);
      return say('answer', {
        text: foreign ? `${otherLanguageText(language, answerLanguage)}\n${entry.answer}` : entry.answer,
        suggestedActions: entry.actions.slice(0, MAX_SUGGESTED_ACTIONS),
        confidence,
        language: answerLanguage,
      });
    }
    if (contact) return say('contact', { text: text(language, 'contactNoted') });
    const escalate: SuggestedAction = {
      label: text(language, 'talkToPerson'),
      type: 'escalate',
      payload: 'user_requested',
    };
    return say('unsure', { text: text(language, 'unsure'), suggestedActions: [escalate], confidence, low: true });
  };

  return {
    name: 'retrieval',
    reply: async (turn) => answerTurn(turn, performance.now()),
  };
};
