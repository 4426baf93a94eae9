import { at } from '../../api.ts';
import { useRead } from '../../query.ts';
import type { KnowledgeStatus } from '../../types.ts';

const UNDER_WAY_MS = 1_000;

const wordsOf = ({ state, reason, done, total }: KnowledgeStatus): string => {
  if (state === 'off') return `Semantic search is off: ${reason}`;
  if (state === 'ready') return 'Semantic search: ready';
  return `Semantic search: ${done.toLocaleString('en')} of ${total.toLocaleString('en')} entries ready`;
};

/** Whether entries are found by what they mean; looked at again only while that changes. */
export const Meaning = ({ id }: { id: string }) => {
  const { data } = useRead<KnowledgeStatus>(at`/assistants/${id}/knowledge-status`, {
    every: (status) => status?.state === 'making' && UNDER_WAY_MS,
  });
  if (!data || data.total === 0) return null;
  return (
    <div role="status" className="num break">
      {wordsOf(data)}
    </div>
  );
};
