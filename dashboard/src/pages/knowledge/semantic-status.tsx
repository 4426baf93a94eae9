import { at } from '../../api.ts';
import { useRead } from '../../query.ts';
import type { KnowledgeStatus } from '../../types.ts';

const POLL_MS = 1_000;

const wordsOf = ({ state, reason, done, total }: KnowledgeStatus): string => {
  if (state === 'off') return `Semantic search is off: ${reason}`;
  if (state === 'ready') return 'Semantic search: ready';
  return `Semantic search: ${done.toLocaleString('en')} of ${total.toLocaleString('en')} entries ready`;
};

/** Shows the state of semantic search. The state is polled while it is changing. */
export const SemanticStatus = ({ id }: { id: string }) => {
  const { data } = useRead<KnowledgeStatus>(at`/assistants/${id}/knowledge-status`, {
    every: (status) => status?.state === 'making' && POLL_MS,
  });
  if (!data || data.total === 0) return null;
  return (
    <div role="status" className="num break">
      {wordsOf(data)}
      {data.leftOut > 0 && (
        <p>
          The knowledge is too large: {data.leftOut.toLocaleString('en')} texts are not searched by words, variants
          first. Remove some.
        </p>
      )}
      {data.vectorsLeftOut.length > 0 && (
        <p>The knowledge is too large: its vectors are not used for {data.vectorsLeftOut.join(', ')}.</p>
      )}
    </div>
  );
};
