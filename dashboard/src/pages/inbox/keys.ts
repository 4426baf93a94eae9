import { useEffect, useRef, useSyncExternalStore } from 'react';

/** The shortcuts, in the order of the help. Each has a button on the page too. */
export const SHORTCUTS = [
  ['j', 'Next conversation'],
  ['k', 'Previous conversation'],
  ['Enter', 'Open the conversation'],
  ['r', 'Write a reply'],
  ['n', 'Write a note'],
  ['e', 'Resolve'],
  ['a', 'Assign to me'],
  ['t', 'Tag'],
  ['s', 'Snooze'],
  ['/', 'Search'],
  ['?', 'Show the shortcuts'],
  ['Escape', 'Leave a field, or go back to the list'],
] as const;

type Shortcut = (typeof SHORTCUTS)[number][0];

const STORE = 'parley-shortcuts';
const listeners = new Set<() => void>();
const areOn = (): boolean => {
  try {
    return localStorage.getItem(STORE) !== 'off';
  } catch {
    return true; // storage is closed to this page
  }
};
const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => void listeners.delete(listener);
};

/** People who speak to their computer must be able to switch single keys off. */
export const useShortcutsOn = () => {
  const on = useSyncExternalStore(subscribe, areOn);
  const set = (value: boolean): void => {
    try {
      localStorage.setItem(STORE, value ? 'on' : 'off');
    } catch {
      // The browser does not allow this page to use storage.
    }
    for (const listener of listeners) listener();
  };
  return [on, set] as const;
};

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement &&
  (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName));
const COVERS = '[role=dialog], [role=menu]';
/** True if a dialog or menu is open, or was open when the key was pressed: Escape may have closed it already. */
const isCovered = (target: EventTarget | null): boolean =>
  document.querySelector(COVERS) !== null || (target instanceof Element && target.closest(COVERS) !== null);

/** Calls the handler of a pressed key, unless the person is typing or a dialog is open. */
export const useShortcuts = (handlers: Partial<Record<Shortcut, () => void>>): void => {
  const latest = useRef(handlers);
  useEffect(() => {
    latest.current = handlers;
  });
  const [on] = useShortcutsOn();
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const { key, ctrlKey, metaKey, altKey, target } = event;
      if (event.defaultPrevented || event.isComposing || ctrlKey || metaKey || altKey) return;
      if (isTyping(target) || isCovered(target) || (!on && key !== 'Escape')) return;
      const handler = latest.current[key as Shortcut];
      if (!handler) return;
      event.preventDefault();
      handler();
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, [on]);
};
