import type { ReactNode } from 'react';

export type Tone = 'good' | 'bad' | 'warn' | 'calm' | 'busy';

/** A coloured dot with a word, so that the state does not depend on colour. */
export const Status = ({ tone, children }: { tone: Tone; children: ReactNode }) => (
  <span className="status" data-tone={tone}>
    <span className="status-dot" aria-hidden="true" />
    {children}
  </span>
);
