import * as z from 'zod';

const canonicalLanguage = (value: string): string | null => {
  try {
    return Intl.getCanonicalLocales(value)[0] ?? null;
  } catch {
    return null;
  }
};

const MAX_LANGUAGE_LENGTH = 35;

/** A well-formed BCP 47 tag of at most 35 characters, converted to its canonical form (docs/contract.md, Request). */
export const LanguageTag = z.string().transform((value, context) => {
  const canonical = value.length <= MAX_LANGUAGE_LENGTH ? canonicalLanguage(value) : null;
  if (canonical === null) {
    context.addIssue({ code: 'custom', message: 'must be a well-formed BCP 47 language tag of at most 35 characters' });
    return z.NEVER;
  }
  return canonical;
});
