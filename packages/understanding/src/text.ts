/**
 * What every process may use: the language of a text, its words, and an entry’s texts to compare. Loading this is
 * quick. `@parley/understanding` has the search and the model.
 */
export { fold, foldBeginning, segmentWords, UNSPACED, withoutPiledMarks, words } from './fold.ts';
export {
  decideLanguage,
  type LanguageDecision,
  type LanguageEvidence,
  mainLanguage,
  sameLanguage,
} from './language.ts';
export { baseLanguage, isTraditionalChinese, textsIn } from './fold.ts';
export { type ComparedText, comparedTexts, type TextKind } from './similarity.ts';
