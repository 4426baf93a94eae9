import { textsOf } from '../language/text-table.ts';
import texts from './away-texts.json' with { type: 'json' };

type Texts = { closed: string; notTaken: string };

const TEXTS: Readonly<Record<string, Texts>> = texts;

export const AWAY_LANGUAGES: readonly string[] = Object.keys(TEXTS);

/** The date and time as people of this language write it. */
const describeTime = (language: string, at: Date, timeZone: string): string =>
  new Intl.DateTimeFormat(language, {
    weekday: 'long',
    day: 'numeric',
    month: 'long',
    hour: 'numeric',
    minute: '2-digit',
    timeZone,
    timeZoneName: 'short',
  }).format(at);

/** Tells a visitor when somebody answers. In English if the language has no texts. */
export const closedText = (language: string, at: Date, timeZone: string): string => {
  const own = textsOf(TEXTS, language);
  const time = describeTime(own ? language : 'en', at, timeZone);
  return (own ?? texts.en).closed.replace('{time}', () => time);
};

/** Tells a visitor that nobody took the conversation in time and that the assistant answers again. */
export const notTakenText = (language: string): string => (textsOf(TEXTS, language) ?? texts.en).notTaken;
