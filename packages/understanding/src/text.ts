/**
 * What every process may ask of a text: its language, its words, and which texts of an entry are compared. Loading this
 * is quick. `@parley/understanding` has the search and the model.
 */
export { fold, foldBeginning, segmentWords, UNSPACED, withoutPiledMarks, words } from './fold.ts';
export { decideLanguage, type LanguageDecision, type LanguageEvidence, loadLanguages } from './language.ts';
export { baseLanguage, isTraditionalChinese, textsIn } from './lexicon.ts';
export { type ComparedText, comparedTexts, type TextKind } from './similarity.ts';
