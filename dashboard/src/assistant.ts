import { useEffect } from 'react';
import { useRoute } from 'wouter';
import type { Me } from './types.ts';

const KEY = 'parley-assistant';

export const rememberedAssistant = (): string | null => {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // storage is closed to this page
  }
};

const remember = (assistantId: string): void => {
  try {
    localStorage.setItem(KEY, assistantId);
  } catch {
    // The browser does not allow this page to use storage.
  }
};

/**
 * The current assistant: the one in the page's address, otherwise the last one used in this browser, otherwise the
 * first of the list.
 */
export const useAssistant = ({ assistants }: Me): Me['assistants'][number] | null => {
  const [, params] = useRoute('/assistants/:id/*?');
  const named = params?.id;
  const found = (id: string | null | undefined) => assistants.find(({ assistantId }) => assistantId === id);
  useEffect(() => {
    if (named !== undefined) remember(named);
  }, [named]);
  return found(named) ?? found(rememberedAssistant()) ?? assistants[0] ?? null;
};
