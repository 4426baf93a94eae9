import { Button, FileButton, Menu, NativeSelect } from '@mantine/core';
import { useState } from 'react';
import { useLocation } from 'wouter';
import { at, call, withQuery } from '../../api.ts';
import { useAddress } from '../../parts/address.ts';
import { Back } from '../../parts/back.tsx';
import { useConfirm } from '../../parts/confirm.tsx';
import { Icon } from '../../parts/icon.tsx';
import { Notice } from '../../parts/notice.tsx';
import { Facts, Page, Section } from '../../parts/page.tsx';
import { Pager } from '../../parts/pager.tsx';
import { RowMenu } from '../../parts/row-menu.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { When } from '../../parts/when.tsx';
import { useChange, useRead } from '../../query.ts';
import type { Source as SourceType, SourcePage, SourcePages } from '../../types.ts';
import { useDraft } from '../versions/draft.tsx';
import { EditSource, FILE_TYPES, scheduleWords, useReplace } from './source-form.tsx';
import {
  changesOf,
  contentOf,
  countOf,
  isBusy,
  KINDS,
  PAGE_STATE_OPTIONS,
  PageStatus,
  pollOf,
  SourceProgress,
  SourceStatus,
  useVectorsOff,
} from './source-state.tsx';

type Props = { id: string; sourceId: string };

const PAGES_MS = 2_000;

const pathsOf = ({ include, exclude }: SourceType): string =>
  [
    include.length > 0 ? `Only ${include.join(', ')}` : 'Everything below the address',
    exclude.length > 0 && `not ${exclude.join(', ')}`,
  ]
    .filter(Boolean)
    .join('; ');

const Address = ({ url }: { url: string }) => (
  <a className="source-link break" href={url} target="_blank" rel="noreferrer">
    {url}
  </a>
);

const Details = ({ source, vectors }: { source: SourceType; vectors: boolean }) => {
  const { kind, url, nextAt, endedAt } = source;
  const changes = changesOf(source);
  return (
    <Section>
      <Facts
        facts={{
          State: (
            <>
              <SourceStatus source={source} />
              <SourceProgress source={source} vectors={vectors} />
            </>
          ),
          Kind: KINDS[kind],
          ...(url !== null && { Address: <Address url={url} /> }),
          ...(kind === 'site' && { Paths: pathsOf(source) }),
          ...(source.live > 0 && { Content: contentOf(source) }),
          ...(changes !== null && { 'Changed last time': changes }),
          ...(endedAt !== null && { 'Last read': <When at={endedAt} exact /> }),
          ...(kind !== 'file' && {
            'Read again': (
              <>
                {scheduleWords(source)}
                {nextAt !== null && !isBusy(source) && (
                  <>
                    , next <When at={nextAt} />
                  </>
                )}
              </>
            ),
          }),
        }}
      />
    </Section>
  );
};

const PageRow = ({ page }: { page: SourcePage }) => {
  // The host of a long URL says nothing on a phone.
  const name = page.title ?? URL.parse(page.url)?.pathname ?? page.url;
  return (
    <li className="row row-stack">
      <div className="row-main">
        <div className="row-title">
          {/^https?:/.test(page.url) ? (
            <a href={page.url} target="_blank" rel="noreferrer">
              {name}
            </a>
          ) : (
            name
          )}
        </div>
        {name !== page.url && <div className="row-sub break">{page.url}</div>}
        {page.error && <div className={page.state === 'failed' ? 'source-error' : 'row-sub'}>{page.error.message}</div>}
      </div>
      <PageStatus state={page.state} />
    </li>
  );
};

const Pages = ({ path, source }: { path: string; source: SourceType }) => {
  const { of, set, bound } = useAddress(['state']);
  const query = { state: of('state'), cursor: of('cursor') };
  const read = useRead<SourcePages>(withQuery(`${path}/pages`, query), {
    keep: true,
    every: isBusy(source) && PAGES_MS,
  });
  const options = PAGE_STATE_OPTIONS.map(({ value, label }) => ({
    value,
    label: `${label} (${countOf(source, value).toLocaleString('en')})`,
  }));
  return (
    <>
      {source.kind === 'site' && (
        <div className="filters" role="search" aria-label="Filter pages">
          <NativeSelect
            label="State of pages"
            data={[{ value: '', label: 'All pages' }, ...options]}
            {...bound('state')}
          />
        </div>
      )}
      <Section flush>
        <Shown read={read} rows={5}>
          {({ pages }) =>
            pages.length === 0 ? (
              <Empty icon="list" title={of('state') === '' ? 'No pages yet' : 'No pages in this state'} />
            ) : (
              <ul className="rows" aria-label="Pages of the source">
                {pages.map((page) => (
                  <PageRow key={page.pageId} page={page} />
                ))}
              </ul>
            )
          }
        </Shown>
      </Section>
      <Pager
        cursor={of('cursor')}
        next={read.data?.nextCursor}
        onGo={(cursor) => set('cursor', cursor)}
        labels={['First', 'Next']}
      />
    </>
  );
};

/** What the draft does with the source, and how to undo it. */
const DraftNotice = ({ path, edit }: { path: string; edit: NonNullable<SourceType['edit']> }) => {
  const keep = useChange({
    run: () => call<SourceType>('POST', `${path}/keep`),
    invalidates: ['/assistants/'],
    done: 'The draft keeps the source.',
  });
  const isAdded = edit.kind === 'added';
  return (
    <Notice
      tone="warn"
      icon="pencil"
      title={isAdded ? 'Only the draft has this source' : 'The draft removes this source'}
      actions={
        !isAdded && (
          <Button size="xs" variant="default" loading={keep.isPending} onClick={() => keep.mutate()}>
            Keep it
          </Button>
        )
      }
    >
      {edit.by.name ?? 'The service'}, <When at={edit.at} />.{' '}
      {isAdded ? 'Visitors get answers from it once you publish.' : 'Visitors get answers from it until you publish.'}
    </Notice>
  );
};

const REMOVALS = {
  live: 'The assistant no longer answers from it, and everything read from it is deleted. Entries that you accepted stay.',
  added: 'Only the draft has it. Everything read from it is deleted.',
  drafted:
    'Visitors get answers from it until you publish. It is then kept as long as a version has it that you can roll back to.',
};

const Source = ({ id, sourceId }: Props) => {
  const path = at`/assistants/${id}/sources/${sourceId}`;
  const off = useVectorsOff(id);
  const [, go] = useLocation();
  const { drafts: hasDrafts = false } = useDraft(id).data ?? {};
  const remove = useChange({
    run: (_how: keyof typeof REMOVALS) => call<void>('DELETE', path),
    invalidates: hasDrafts ? [at`/assistants/${id}/draft`] : [],
    done: (_answer, how) => (how === 'drafted' ? 'The source is removed in the draft.' : 'The source is removed.'),
    after: () => go(`/assistants/${id}/sources`, { replace: true }),
  });
  // A source that is being removed is not read again: it is not there.
  const isLeaving = remove.isPending || remove.isSuccess;
  const read = useRead<SourceType>(path, { every: (source) => !isLeaving && pollOf(source && [source]) });
  const [editing, setEditing] = useState(false);
  const { dialog, ask } = useConfirm();
  const refresh = useChange({
    run: () => call<SourceType>('POST', `${path}/refresh`),
    invalidates: ['/assistants/'],
    done: 'The source is read again.',
  });
  const replace = useReplace(path);
  const source = read.data;
  const inDraft = source?.edit?.kind === 'added' ? 'added' : 'drafted';
  const how = hasDrafts ? inDraft : 'live';
  const askRemove = () =>
    ask({
      title: 'Remove this source?',
      body: REMOVALS[how],
      action: 'Remove source',
      danger: true,
      onConfirm: () => remove.mutate(how),
    });
  const actions = source && (
    <>
      {source.kind === 'file' && (
        <FileButton accept={FILE_TYPES} onChange={replace.send}>
          {(props) => (
            <Button
              variant="default"
              leftSection={<Icon name="upload" size={16} />}
              loading={replace.isPending}
              {...props}
            >
              Replace file
            </Button>
          )}
        </FileButton>
      )}
      <Button
        leftSection={<Icon name="refresh" size={16} />}
        onClick={() => refresh.mutate()}
        loading={refresh.isPending}
        disabled={isBusy(source)}
      >
        Refresh now
      </Button>
      <RowMenu label="More actions">
        <Menu.Item leftSection={<Icon name="pencil" size={16} />} onClick={() => setEditing(true)}>
          {source.kind === 'file' ? 'Rename…' : 'Change name, schedule or paths…'}
        </Menu.Item>
        {source.edit?.kind !== 'removed' && (
          <Menu.Item className="danger" leftSection={<Icon name="trash" size={16} />} onClick={askRemove}>
            Remove…
          </Menu.Item>
        )}
      </RowMenu>
    </>
  );
  return (
    <Page
      title={source?.name ?? 'Source'}
      above={<Back to={`/assistants/${id}/sources`}>Sources</Back>}
      actions={actions}
    >
      <Shown read={read}>
        {(one) => (
          <>
            {one.error && (
              <Notice
                tone="bad"
                title={one.live > 0 ? 'It could not be read again; the last version answers' : 'It could not be read'}
              >
                {one.error.message}
              </Notice>
            )}
            {one.edit && <DraftNotice path={path} edit={one.edit} />}
            <Details source={one} vectors={off === null} />
            <Pages path={path} source={one} />
            {editing && <EditSource path={path} source={one} onClose={() => setEditing(false)} />}
          </>
        )}
      </Shown>
      {dialog}
    </Page>
  );
};

export default Source;
