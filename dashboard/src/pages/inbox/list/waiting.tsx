import { useNow } from '../../../parts/when.tsx';

const MINUTE = 60_000;

const durationWords = (ms: number): string => {
  const minutes = Math.max(0, Math.floor(ms / MINUTE));
  if (minutes < 1) return 'less than a minute';
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h`;
  return `${Math.floor(minutes / 1440)} days`;
};

/** How long a visitor has waited for a person. */
export const Waiting = ({ since }: { since: string }) => (
  <span className="waiting">waiting {durationWords(useNow() - Date.parse(since))}</span>
);
