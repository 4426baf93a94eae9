const KEY = 'parley-notifications';

type NotificationChoice = 'on' | 'off' | 'blocked' | 'impossible';

const isWanted = (): boolean => {
  try {
    return localStorage.getItem(KEY) === 'on';
  } catch {
    return false; // storage is closed to this page
  }
};

/** Browsers offer notifications only to pages over TLS and on this machine. */
export const readChoice = (): NotificationChoice => {
  if (!('Notification' in globalThis) || !isSecureContext) return 'impossible';
  if (Notification.permission === 'denied') return 'blocked';
  return Notification.permission === 'granted' && isWanted() ? 'on' : 'off';
};

/** Turns notifications on or off for this browser. The browser asks the person once. */
export const choose = async (on: boolean): Promise<NotificationChoice> => {
  try {
    localStorage.setItem(KEY, on ? 'on' : 'off');
  } catch {
    // Then the choice cannot be kept.
  }
  if (on && Notification.permission === 'default') await Notification.requestPermission();
  return readChoice();
};

type Shown = { title: string; body: string; conversationId: string; tag: string };

/** Shows a notification without a sound. The same tag in several tabs shows it once. */
export const showNotification = ({ title, body, conversationId, tag }: Shown): void => {
  if (readChoice() !== 'on') return;
  const notification = new Notification(title, { body, tag, silent: true });
  notification.addEventListener('click', () => {
    focus();
    location.assign(`/operator/inbox/${conversationId}`);
    notification.close();
  });
};
