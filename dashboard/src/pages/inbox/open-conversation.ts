import { createContext, useContext } from 'react';
import type { Me } from '../../types.ts';
import type { actionsOn } from './actions/actions.ts';
import type { Act } from './actions/change.ts';
import type { ConversationFacts } from './thread/thread.ts';

type Opened = {
  facts: ConversationFacts;
  me: Me;
  actions: ReturnType<typeof actionsOn>;
  act: (act: Act) => void;
};

/** The conversation that is open, and what can be done with it. */
export const OpenConversation = createContext<Opened | null>(null);

export const useOpenConversation = (): Opened => {
  const opened = useContext(OpenConversation);
  if (!opened) throw new Error('no conversation is open here');
  return opened;
};
