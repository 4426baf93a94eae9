import { useEffect, useState } from 'react';
import { Status } from '../parts/status.tsx';
import { useLiveState } from './live.tsx';

/** Short interruptions are not worth a word. */
const SHOWN_AFTER_MS = 3_000;

/** Says that live updates are interrupted, so that nobody relies on a page that stands still. */
export const StateNote = () => {
  const lost = useLiveState() === 'reconnecting';
  const [shown, setShown] = useState(false);
  useEffect(() => {
    if (!lost) {
      setShown(false);
      return undefined;
    }
    const timer = setTimeout(() => setShown(true), SHOWN_AFTER_MS);
    return () => clearTimeout(timer);
  }, [lost]);
  return (
    <div role="status" className="live-note">
      {shown && <Status tone="warn">Reconnecting…</Status>}
    </div>
  );
};
