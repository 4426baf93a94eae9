import type { Tone } from '../../parts/status.tsx';

export const STATUS_WORDS = { open: 'Open', escalated: 'Needs a person', resolved: 'Resolved' } as const;
export type StatusName = keyof typeof STATUS_WORDS;
export const STATUS_TONES: Record<StatusName, Tone> = { open: 'good', escalated: 'warn', resolved: 'calm' };

export const CHANNEL_WORDS: Record<string, string> = {
  api: 'Chat API',
  webhook: 'Inbound webhook',
  web: 'Web',
  playground: 'Try it',
};

const REASONS: Record<string, string> = {
  user_requested: 'The visitor asked for a person',
  low_confidence: 'The assistant was not sure twice in a row',
  engine_error: 'The assistant failed twice in a row',
  contact_details: 'The visitor left contact details',
  budget_used_up: 'The day’s tokens of the provider were used up',
  manual: 'Escalated by hand',
};

export const reasonWords = (reason: string): string => REASONS[reason] ?? reason;

const names = new Intl.DisplayNames('en', { type: 'language', fallback: 'code' });

export const languageWords = (tag: string): string => {
  try {
    return names.of(tag) ?? tag;
  } catch {
    return tag; // not a tag that this browser knows
  }
};

/** Two letters for a person: from the parts of the name before the @. */
export const initialsOf = (email: string): string => {
  const parts = (email.split('@')[0] ?? '').split(/[._+-]/).filter(Boolean);
  const letters =
    parts.length > 1 ? [parts[0], parts[1]].map((part) => part?.[0] ?? '') : [(parts[0] ?? '?').slice(0, 2)];
  return letters.join('').toUpperCase();
};
