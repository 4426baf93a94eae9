import { baseLanguage } from './base.ts';

/** Tags of Chinese in traditional characters, by script or by region. */
const TRADITIONAL = /^zh-(?:.*-)?(?:hant|tw|hk|mo)\b/i;

/** The texts of a language, from tables by language. Undefined if there are none. */
export const textsOf = <Texts>(tables: Readonly<Record<string, Texts>>, language: string): Texts | undefined => {
  const key = TRADITIONAL.test(language) ? 'zh-Hant' : baseLanguage(language);
  return Object.hasOwn(tables, key) ? tables[key] : undefined;
};

export const isTraditionalChinese = (language: string): boolean => TRADITIONAL.test(language);
