/**
 * The language of a tag without region or script: `pt-BR` → `pt`. Bokmål (`nb`) and Nynorsk (`nn`) both become `no`.
 */
export const baseLanguage = (tag: string): string => {
  const base = (tag.split('-', 1)[0] ?? tag).toLowerCase();
  return base === 'nb' || base === 'nn' ? 'no' : base;
};
