import { baseLanguage } from './base.ts';
import { loadDetector } from './detector.ts';
import { readScript } from './scripts.ts';
import { tally } from './tally.ts';

/** Why a language was chosen. It is stored with the turn, so that every decision can be explained. */
export type LanguageDecision = {
  language: string;
  by: 'given' | 'script' | 'lexicon' | 'detector' | 'previous' | 'default';
  /**
   * True if the message or its sender decides the language. If false, the caller must look up the conversation's
   * language first.
   */
  decided: boolean;
};

export type LanguageEvidence = {
  /** The canonical BCP 47 tag that was sent with the message. */
  given?: string | null | undefined;
  message: string;
  /** Languages of the assistant, the preferred one first. An empty list allows any language. */
  allowed?: readonly string[] | undefined;
  /** The conversation's language so far. */
  previous?: string | null | undefined;
};

/**
 * How many characters of a message are read. They are enough to recognise the language, and more would only cost time.
 */
const SAMPLE_LENGTH = 500;
/** How many characters the detector gets. The detector is slow on long texts, and one or two sentences are enough. */
const DETECTOR_LENGTH = 200;
/** Matches addresses, links and handles, which do not show the language of a message. */
const NOT_LANGUAGE = /@|:\/\/|^www\.|^#/u;

/** The full tag that the conversation or the assistant uses for a base language. */
const asSpoken = (base: string, { allowed = [], previous }: LanguageEvidence): string => {
  if (previous && baseLanguage(previous) === base) return previous;
  return allowed.find((tag) => baseLanguage(tag) === base) ?? base;
};

const fallBack = (
  evidence: LanguageEvidence,
  guess: { base: string; by: 'script' | 'lexicon' | 'detector' } | null,
): LanguageDecision => {
  if (evidence.previous) return { language: evidence.previous, by: 'previous', decided: false };
  if (guess) return { language: asSpoken(guess.base, evidence), by: guess.by, decided: false };
  return { language: evidence.allowed?.[0] ?? 'en', by: 'default', decided: false };
};

/**
 * Decides the language of a message. The order of evidence is: the given tag, the script, chat words and a detector,
 * then the conversation's language.
 */
export const decideLanguage = (evidence: LanguageEvidence): LanguageDecision => {
  if (evidence.given) return { language: evidence.given, by: 'given', decided: true };
  const sample = evidence.message
    .slice(0, SAMPLE_LENGTH)
    .split(/\s+/u)
    .filter((word) => !NOT_LANGUAGE.test(word))
    .join(' ')
    .replace(/\d+/gu, ' ');
  const script = readScript(sample);
  if (script && 'certain' in script) {
    return { language: asSpoken(script.certain, evidence), by: 'script', decided: true };
  }

  const counted = tally(sample, {
    among: script?.among ?? null,
    hint: script?.hint ?? null,
    allowed: evidence.allowed ?? [],
    detect: (text, only) => loadDetector().detectAll(text.slice(0, DETECTOR_LENGTH), { only }),
  });
  if (counted.best === null) return fallBack(evidence, null);
  const guess = { base: counted.best, by: counted.by };
  // If the detector is unsure, its result is not used. Recognised words are used even if they are unclear, because they
  // are better than no evidence.
  if (!counted.clear) return fallBack(evidence, counted.by === 'detector' ? null : guess);
  return { language: asSpoken(guess.base, evidence), by: guess.by, decided: true };
};
