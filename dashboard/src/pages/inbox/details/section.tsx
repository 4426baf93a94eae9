import type { ReactNode } from 'react';

export const Part = ({ title, children }: { title: string; children: ReactNode }) => (
  <section className="details-part" aria-label={title}>
    <h3>{title}</h3>
    {children}
  </section>
);
