import { Button, Stack } from '@mantine/core';
import { useState } from 'react';
import { at } from '../../api.ts';
import { Notice } from '../../parts/notice.tsx';
import { useRead } from '../../query.ts';
import type { KnowledgeConflicts } from '../../types.ts';

const FEW = 3;
/** The API returns at most this many conflicts. */
const MOST = 100;

/** Entries with similar questions but different answers. A visitor may get any of these answers. */
export const Conflicts = ({ id, onOpen }: { id: string; onOpen: (entryId: string) => void }) => {
  const [all, setAll] = useState(false);
  const read = useRead<KnowledgeConflicts>(at`/assistants/${id}/knowledge-conflicts`);
  const conflicts = read.data?.conflicts ?? [];
  if (conflicts.length === 0) return null;
  const shown = all ? conflicts : conflicts.slice(0, FEW);
  return (
    <Notice
      tone="warn"
      title={
        conflicts.length === 1
          ? 'Two entries have similar questions but different answers'
          : `${conflicts.length}${conflicts.length === MOST ? ' or more' : ''} pairs of entries have similar questions but different answers`
      }
    >
      <Stack gap={6}>
        {shown.map(({ entryIds: [first, second], questions: [one, other] }) => (
          <div key={`${first} ${second}`}>
            <button type="button" className="as-link" onClick={() => onOpen(first)}>
              {one}
            </button>{' '}
            <span className="dim">and</span>{' '}
            <button type="button" className="as-link" onClick={() => onOpen(second)}>
              {other}
            </button>
          </div>
        ))}
        {conflicts.length > FEW && (
          <Button variant="subtle" color="gray" size="xs" className="self-start" onClick={() => setAll(!all)}>
            {all ? 'Show fewer' : `Show all ${conflicts.length}`}
          </Button>
        )}
      </Stack>
    </Notice>
  );
};
