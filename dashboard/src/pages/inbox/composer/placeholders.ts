import type { Me } from '../../../types.ts';
import type { ConversationFacts } from '../thread/thread.ts';

const PLACEHOLDER = /\{\{([\w.-]{1,100})\}\}/g;

/** Fills the placeholders of a canned reply. A placeholder without a value stays, so that the agent sees it. */
export const fillIn = (content: string, { sessionId, language, attributes }: ConversationFacts, me: Me): string => {
  const values = new Map<string, string>([
    ['session_id', sessionId],
    ['language', language],
    ['agent', me.email],
    ...Object.entries(attributes).map(([name, value]): [string, string] => [`attribute.${name}`, String(value)]),
  ]);
  return content.replace(PLACEHOLDER, (whole, name: string) => values.get(name) ?? whole);
};
