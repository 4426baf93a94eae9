import { useCallback, useEffect, useRef, useState } from 'react';

const STOPPED_AFTER_MS = 8_000;

/** True while a person types, and for some seconds after. */
export const useWriting = (): { isWriting: boolean; note: () => void; stop: () => void } => {
  const [isWriting, setWriting] = useState(false);
  const timer = useRef<number | undefined>(undefined);
  const stop = useCallback(() => {
    window.clearTimeout(timer.current);
    setWriting(false);
  }, []);
  const note = useCallback(() => {
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(stop, STOPPED_AFTER_MS);
    setWriting(true);
  }, [stop]);
  useEffect(() => () => window.clearTimeout(timer.current), []);
  return { isWriting, note, stop };
};
