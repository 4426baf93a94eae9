import type { ReactNode } from 'react';

export type Tone = 'good' | 'bad' | 'warn' | 'calm' | 'busy';

/** A dot and a word: the colour is never all there is to tell. */
export const Status = ({ tone, children }: { tone: Tone; children: ReactNode }) => (
  <span className="status" data-tone={tone}>
    <span className="status-dot" aria-hidden="true" />
    {children}
  </span>
);
