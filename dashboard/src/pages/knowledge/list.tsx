import { Button, TextInput } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useState } from 'react';
import { at, withQuery } from '../../api.ts';
import { useAddress } from '../../parts/address.ts';
import { Icon } from '../../parts/icon.tsx';
import { Page, Section } from '../../parts/page.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { useRead } from '../../query.ts';
import type { Knowledge as KnowledgeList, KnowledgeEntry } from '../../types.ts';
import { Status } from '../../parts/status.tsx';
import { DraftBar, useDraft } from '../versions/draft.tsx';
import { Conflicts } from './conflicts.tsx';
import { EntryEditor } from './entry-editor.tsx';
import { Import } from './import.tsx';
import { SemanticStatus } from './semantic-status.tsx';

const PAGE = 100;
const TYPING_MS = 200;

const Row = ({ entry, onOpen }: { entry: KnowledgeEntry; onOpen: () => void }) => (
  <li>
    <button type="button" className="row entry" onClick={onOpen}>
      <span className="row-main">
        <span className="row-title block">{entry.question}</span>
        <span className="row-sub two-lines">{entry.answer}</span>
      </span>
      {entry.edit && <Status tone="busy">{entry.edit.kind === 'added' ? 'Added' : 'Changed'}</Status>}
      <span className="dim nowrap wide">
        {[
          entry.language,
          entry.variants.length > 0 &&
            `${entry.variants.length} ${entry.variants.length === 1 ? 'variant' : 'variants'}`,
        ]
          .filter(Boolean)
          .join(' · ')}
      </span>
    </button>
  </li>
);

const Entries = ({
  entries,
  searching,
  onOpen,
}: {
  entries: KnowledgeEntry[];
  searching: boolean;
  onOpen: (id: string) => void;
}) => {
  const [shown, setShown] = useState(PAGE);
  if (entries.length === 0) {
    return searching ? (
      <Empty icon="search" title="No entry has these words" />
    ) : (
      <Empty icon="book" title="No entries yet">
        Write questions and their answers, or import a file. A dozen good entries go a long way. Your website and
        documents go under Sources.
      </Empty>
    );
  }
  return (
    <>
      <ul className="rows" aria-label="Knowledge">
        {entries.slice(0, shown).map((entry) => (
          <Row key={entry.entryId} entry={entry} onOpen={() => onOpen(entry.entryId)} />
        ))}
      </ul>
      {entries.length > shown && (
        <div className="more">
          <Button variant="subtle" color="gray" onClick={() => setShown(shown + PAGE)}>
            Show {Math.min(PAGE, entries.length - shown)} more
          </Button>
        </div>
      )}
    </>
  );
};

const Knowledge = ({ id }: { id: string }) => {
  const path = at`/assistants/${id}/knowledge`;
  const { of, set } = useAddress(['search', 'entry'], ['search']);
  const entry = of('entry');
  const setEntry = (entryId: string | null) => set('entry', entryId);
  const [typed, setTyped] = useState(of('search'));
  const [wanted] = useDebouncedValue(typed.trim(), TYPING_MS);
  const draft = useDraft(id).data;
  const all = useRead<KnowledgeList>(withQuery(path, { draft: 'true' }));
  const found = useRead<KnowledgeList>(withQuery(path, { search: wanted, draft: 'true' }), {
    keep: true,
    enabled: wanted !== '',
  });
  const [importing, setImporting] = useState(false);
  const opened = all.data?.entries.find(({ entryId }) => entryId === entry);
  const count = all.data?.entries.length ?? 0;

  return (
    <Page
      title="Knowledge"
      description={
        <>
          Questions and their answers. Visitors can ask in their own words.
          <SemanticStatus id={id} />
        </>
      }
      actions={
        <>
          <Button variant="default" leftSection={<Icon name="upload" size={16} />} onClick={() => setImporting(true)}>
            Import
          </Button>
          <Button leftSection={<Icon name="plus" size={16} />} onClick={() => setEntry('new')}>
            Add entry
          </Button>
        </>
      }
    >
      <DraftBar id={id} />
      {(count > 0 || typed !== '') && (
        <TextInput
          aria-label="Search the knowledge"
          placeholder={`Search ${count} ${count === 1 ? 'entry' : 'entries'}`}
          leftSection={<Icon name="search" size={16} />}
          value={typed}
          maxLength={256}
          type="search"
          onChange={(event) => {
            setTyped(event.currentTarget.value);
            set('search', event.currentTarget.value);
          }}
        />
      )}
      {wanted === '' && <Conflicts id={id} onOpen={setEntry} />}
      <Section flush>
        <Shown read={wanted === '' ? all : found} rows={6}>
          {({ entries }) => <Entries key={wanted} entries={entries} searching={wanted !== ''} onOpen={setEntry} />}
        </Shown>
      </Section>
      {(entry === 'new' || opened) && (
        <EntryEditor
          key={entry}
          path={path}
          entry={opened ?? null}
          seen={all.data?.draftRevision}
          mayPublish={draft?.drafts === true && draft.draft === null}
          onClose={() => setEntry(null)}
        />
      )}
      {importing && <Import id={id} onClose={() => setImporting(false)} />}
    </Page>
  );
};

export default Knowledge;
