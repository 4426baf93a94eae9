import { Button, FileButton } from '@mantine/core';
import { useState } from 'react';
import { Link } from 'wouter';
import { at } from '../../api.ts';
import { Icon } from '../../parts/icon.tsx';
import { Page, Section } from '../../parts/page.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { useRead } from '../../query.ts';
import { DraftBar } from '../versions/draft.tsx';
import type { Source, Sources as SourceList } from '../../types.ts';
import { ProposalList } from './proposals.tsx';
import { AddUrl, FILE_TYPES, useUpload } from './source-form.tsx';
import {
  contentOf,
  counted,
  isBusy,
  KINDS,
  pollOf,
  SourceEdit,
  SourceProgress,
  SourceStatus,
  useVectorsOff,
} from './source-state.tsx';

const MOST = 100;

const Row = ({ id, source, vectors }: { id: string; source: Source; vectors: boolean }) => (
  <li>
    <Link className="row row-stack" to={`/assistants/${id}/sources/${source.sourceId}`}>
      <div className="row-main">
        <div className="row-title">{source.name}</div>
        <div className="row-sub">
          {KINDS[source.kind]}
          {source.live > 0 && ` · ${contentOf(source)}`}
        </div>
        {source.error && <div className="source-error">{source.error.message}</div>}
        <SourceProgress source={source} vectors={vectors} />
      </div>
      <SourceEdit source={source} />
      <SourceStatus source={source} />
      <span className="wide">
        <Icon name="right" size={16} />
      </span>
    </Link>
  </li>
);

const Sources = ({ id }: { id: string }) => {
  const path = at`/assistants/${id}/sources`;
  const read = useRead<SourceList>(path, { every: (found) => pollOf(found?.sources) });
  const [adding, setAdding] = useState(false);
  const upload = useUpload(id);
  const off = useVectorsOff(id);
  const full = (read.data?.sources.length ?? 0) >= MOST;
  const { proposed = 0, leftOut = 0 } = read.data ?? {};
  return (
    <Page
      title="Sources"
      description={
        <>
          Websites and files that the assistant quotes in its answers.
          {leftOut > 0 && (
            <div role="status">
              {counted(leftOut, 'passage')} exceed the memory of a worker, and answers do not use them. Exclude some
              pages, or remove a source.
            </div>
          )}
          {off !== null && <div role="status">Found by words only. Semantic search is off: {off}</div>}
        </>
      }
      actions={
        <>
          <FileButton multiple accept={FILE_TYPES} onChange={upload.send}>
            {(props) => (
              <Button
                variant="default"
                leftSection={<Icon name="upload" size={16} />}
                loading={upload.isPending}
                disabled={full}
                {...props}
              >
                Upload files
              </Button>
            )}
          </FileButton>
          <Button leftSection={<Icon name="plus" size={16} />} onClick={() => setAdding(true)} disabled={full}>
            Add website
          </Button>
        </>
      }
    >
      <DraftBar id={id} />
      {proposed > 0 && <ProposalList id={id} count={proposed} busy={read.data?.sources.some(isBusy) === true} />}
      <Section flush {...(full && { title: 'Sources', description: `An assistant can have at most ${MOST} sources.` })}>
        <Shown read={read} rows={3}>
          {({ sources }) =>
            sources.length === 0 ? (
              <Empty icon="globe" title="No sources yet">
                Add your help pages or a handbook: a website, or files as PDF, Word, Markdown, HTML or text. The
                assistant answers from the first pages within seconds.
              </Empty>
            ) : (
              <ul className="rows" aria-label="Sources">
                {sources.map((source) => (
                  <Row key={source.sourceId} id={id} source={source} vectors={off === null} />
                ))}
              </ul>
            )
          }
        </Shown>
      </Section>
      {adding && <AddUrl path={path} onClose={() => setAdding(false)} />}
    </Page>
  );
};

export default Sources;
