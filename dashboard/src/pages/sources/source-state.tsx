import { at } from '../../api.ts';
import { Status, type Tone } from '../../parts/status.tsx';
import { When } from '../../parts/when.tsx';
import { useRead } from '../../query.ts';
import type { KnowledgeStatus, Source, SourcePage } from '../../types.ts';

const BUSY_MS = 1_000;
const VECTORS_MS = 5_000;
const IDLE_MS = 30_000;

export const isBusy = ({ state }: Source): boolean => state === 'waiting' || state === 'running';
const lacksVectors = ({ counts }: Source): boolean => counts.embedded < counts.passages;

/** How often the sources are read again: often while one of them changes. */
export const pollOf = (sources: Source[] = []): number => {
  if (sources.some(isBusy)) return BUSY_MS;
  return sources.some(lacksVectors) ? VECTORS_MS : IDLE_MS;
};

export const counted = (count: number, one: string, more = `${one}s`): string =>
  `${count.toLocaleString('en')} ${count === 1 ? one : more}`;

const doneOf = ({ counts: { read, unchanged, skipped, failed, gone } }: Source): number =>
  read + unchanged + skipped + failed + gone;

/** How many pages of the last run have this state. */
export const countOf = (source: Source, state: SourcePage['state']): number =>
  state === 'found' ? source.counts.found - doneOf(source) : source.counts[state];

/** What a source has for answers. */
export const contentOf = (source: Source): string => {
  const { kind, counts } = source;
  const pages = counts.read + counts.unchanged;
  const passages = counted(counts.passages, 'passage');
  if (kind !== 'site') return passages;
  return [counted(pages, 'page'), passages, counts.failed > 0 && `${counted(counts.failed, 'page')} failed`]
    .filter(Boolean)
    .join(' · ');
};

/** What the last run changed, or null if nothing is known. */
export const changesOf = ({ run, changed: { added, changed, removed } }: Source): string | null => {
  if (run < 2) return null;
  if (added + changed + removed === 0) return 'Nothing';
  return [added > 0 && `${added} added`, changed > 0 && `${changed} changed`, removed > 0 && `${removed} removed`]
    .filter(Boolean)
    .join(', ');
};

export const KINDS: Record<Source['kind'], string> = { site: 'Website', page: 'Page', file: 'File' };

export const SourceStatus = ({ source }: { source: Source }) => {
  const { state, kind, endedAt, counts } = source;
  if (state === 'waiting') return <Status tone="busy">Waits to be read</Status>;
  if (state === 'failed') return <Status tone="bad">Failed</Status>;
  if (state === 'ready') {
    return (
      <Status tone={counts.failed > 0 ? 'warn' : 'good'}>
        <span>Read {endedAt !== null && <When at={endedAt} />}</span>
      </Status>
    );
  }
  return (
    <Status tone="busy">
      <span className="num">
        {kind === 'site' ? `Reading: ${doneOf(source)} of ${counted(counts.found, 'page')}` : 'Reading'}
      </span>
    </Status>
  );
};

/** Why no vectors are made. Null if they are. */
export const useVectorsOff = (id: string): string | null => {
  const { data } = useRead<KnowledgeStatus>(at`/assistants/${id}/knowledge-status`, { every: IDLE_MS });
  return data?.state === 'off' ? data.reason : null;
};

/** A bar while a source is read, and then while its vectors are made. */
export const SourceProgress = ({ source, vectors }: { source: Source; vectors: boolean }) => {
  const { state, counts } = source;
  if (state === 'running') {
    return (
      <progress className="progress" max={Math.max(counts.found, 1)} value={doneOf(source)} aria-label="Pages read" />
    );
  }
  if (state !== 'ready' || !vectors || !lacksVectors(source)) return null;
  return (
    <div className="dim num">
      Found by words now; by meaning: {counts.embedded.toLocaleString('en')} of {counts.passages.toLocaleString('en')}{' '}
      passages
      <progress className="progress" max={counts.passages} value={counts.embedded} aria-label="Passages with vectors" />
    </div>
  );
};

/** What the draft does with the source. */
export const SourceEdit = ({ source: { edit } }: { source: Source }) =>
  edit && (
    <Status tone={edit.kind === 'added' ? 'good' : 'bad'}>
      {edit.kind === 'added' ? 'Added in the draft' : 'Removed in the draft'}
    </Status>
  );

const PAGE_STATES: Record<SourcePage['state'], { tone: Tone; label: string }> = {
  found: { tone: 'busy', label: 'To be read' },
  read: { tone: 'good', label: 'Read' },
  unchanged: { tone: 'good', label: 'Unchanged' },
  skipped: { tone: 'calm', label: 'Skipped' },
  failed: { tone: 'bad', label: 'Failed' },
  gone: { tone: 'warn', label: 'Gone' },
};

export const PAGE_STATE_OPTIONS = Object.entries(PAGE_STATES).map(([value, { label }]) => ({
  value: value as SourcePage['state'], // the names of the states
  label,
}));

export const PageStatus = ({ state }: Pick<SourcePage, 'state'>) => (
  <Status tone={PAGE_STATES[state].tone}>{PAGE_STATES[state].label}</Status>
);
