import { Text, Title } from '@mantine/core';
import { useDocumentTitle } from '@mantine/hooks';
import type { ReactNode } from 'react';
import { ColorScheme } from './color-scheme.tsx';
import { Mark } from './mark.tsx';

/** The layout of a page without navigation: sign-in and welcome. */
export const Sheet = ({ title, lead, children }: { title: string; lead?: ReactNode; children: ReactNode }) => {
  useDocumentTitle(`${title} · Parley`);
  return (
    <div className="sheet">
      <main className="sheet-card">
        <Mark />
        <div>
          <Title order={1}>{title}</Title>
          {lead !== undefined && (
            <Text c="dimmed" size="sm" mt={4} component="div">
              {lead}
            </Text>
          )}
        </div>
        {children}
      </main>
      <div className="sheet-foot">
        <ColorScheme />
      </div>
    </div>
  );
};
