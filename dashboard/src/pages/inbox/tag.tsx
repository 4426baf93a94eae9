import type { ReactNode } from 'react';

/** A tag with its colour as a dot, so that its text stays readable. */
export const TagChip = ({ tag, color, children }: { tag: string; color: string | null; children?: ReactNode }) => (
  <span className="tag-chip">
    <span className="tag-dot" style={color === null ? {} : { background: color }} aria-hidden="true" />
    <span className="clip">{tag}</span>
    {children}
  </span>
);
