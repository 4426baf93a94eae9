import { Button, Group, List, Textarea, TextInput } from '@mantine/core';
import { useState } from 'react';
import { Link } from 'wouter';
import { at, call, withQuery } from '../../api.ts';
import { useConfirm } from '../../parts/confirm.tsx';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { Icon } from '../../parts/icon.tsx';
import { When } from '../../parts/when.tsx';
import { isProblem } from '../../problem.ts';
import { useChange, useRead } from '../../query.ts';
import type { AssistantVersion, DraftState } from '../../types.ts';

const REFRESH_MS = 15_000;

const SETTINGS: Record<AssistantVersion['changes']['settings'][number], string> = {
  instructions: 'Instructions',
  answering: 'How sure it must be',
  threshold: 'Threshold',
  allowedLinks: 'Hosts that replies can link to',
  strict: 'Strict replies',
  engine: 'Engine',
};

export const settingWords = (field: keyof typeof SETTINGS): string => SETTINGS[field];

type Changes = Omit<AssistantVersion['changes'], 'settings'> & { settings: (keyof typeof SETTINGS)[] };

const entries = (count: number): string => `${count.toLocaleString('en')} ${count === 1 ? 'entry' : 'entries'}`;
const sourceWords = (count: number): string => `${count.toLocaleString('en')} ${count === 1 ? 'source' : 'sources'}`;

/** What a draft or a version changes, in a few words. */
export const changeWords = ({ added, changed, removed, isReplaced, sources, settings }: Changes): string =>
  [
    isReplaced && 'all entries replaced',
    added > 0 && `${entries(added)} added`,
    changed > 0 && `${entries(changed)} changed`,
    removed > 0 && `${entries(removed)} removed`,
    sources.added > 0 && `${sourceWords(sources.added)} added`,
    sources.removed > 0 && `${sourceWords(sources.removed)} removed`,
    ...settings.map(settingWords),
  ]
    .filter(Boolean)
    .join(' · ');

/** What the draft changes, as a version would. */
const changesOf = ({ counts, settings, sources }: NonNullable<DraftState['draft']>): Changes => {
  const count = (wanted: 'added' | 'removed') => sources.filter(({ kind }) => kind === wanted).length;
  return {
    ...counts,
    settings: settings.map(({ field }) => field),
    sources: { added: count('added'), removed: count('removed') },
  };
};

export const useDraft = (id: string) => useRead<DraftState>(at`/assistants/${id}/draft`, { every: REFRESH_MS });

const Publish = ({ id, revision, onClose }: { id: string; revision: number; onClose: () => void }) => {
  const publish = useChange({
    run: ({ name, note, confirm }: { name: string; note: string; confirm: boolean }) =>
      call<AssistantVersion>('POST', at`/assistants/${id}/draft/publish`, {
        body: { name: name.trim() || null, note: note.trim() || null, seen: revision, confirm },
      }),
    invalidates: ['/assistants/'],
    done: ({ version }) => `Version ${version} is live.`,
    quiet: true,
    after: onClose,
  });
  const form = useFields({ name: '', note: '' }, publish.error);
  const refused = isProblem(publish.error, 409) ? publish.error.details.filter(({ field }) => field === 'confirm') : [];
  const mustConfirm = refused.length > 0;
  return (
    <FormDialog
      title="Publish the draft"
      opened
      onClose={onClose}
      onSend={() => publish.mutate({ ...form.values, confirm: mustConfirm })}
      action={mustConfirm ? 'Publish all the same' : 'Publish'}
      danger={mustConfirm}
      change={publish}
      fields={form.names}
    >
      {refused.some(({ code }) => code === 'not_compared') && (
        <Link className="link" to={`/assistants/${id}/evaluate`}>
          Compare it on the page Evaluate
        </Link>
      )}
      {refused.some(({ code }) => code === 'worse') && (
        <List size="sm" className="break" aria-label="Cases that got worse">
          {refused.map(({ message }, nth) => (
            // Two cases may ask the same.
            <List.Item key={`${nth} ${message}`}>{message}</List.Item>
          ))}
        </List>
      )}
      <TextInput label="Name of the version" maxLength={100} data-autofocus {...form.text('name')} />
      <Textarea label="Note" autosize minRows={2} maxRows={8} maxLength={2000} {...form.text('note')} />
    </FormDialog>
  );
};

/** Publishes or discards a draft. */
export const DraftActions = ({ id, state: { revision } }: { id: string; state: DraftState }) => {
  const [publishing, setPublishing] = useState<number | null>(null);
  const { dialog, ask } = useConfirm();
  const discard = useChange({
    run: () => call<void>('DELETE', withQuery(at`/assistants/${id}/draft`, { seen: revision })),
    invalidates: ['/assistants/'],
    done: 'The draft is discarded.',
  });
  return (
    <Group gap="xs">
      <Button
        size="xs"
        variant="default"
        loading={discard.isPending}
        onClick={() =>
          ask({
            title: 'Discard the draft?',
            body: 'The changes of all its authors are lost, with the sources that only the draft has. What is live stays as it is.',
            action: 'Discard draft',
            danger: true,
            onConfirm: () => discard.mutate(),
          })
        }
      >
        Discard…
      </Button>
      <Button size="xs" onClick={() => setPublishing(revision)}>
        Publish…
      </Button>
      {publishing !== null && <Publish id={id} revision={publishing} onClose={() => setPublishing(null)} />}
      {dialog}
    </Group>
  );
};

/** Says on the pages that change a draft that there is one. */
export const DraftBar = ({ id }: { id: string }) => {
  const state = useDraft(id).data;
  if (!state?.draft) return null;
  const { by, at: changedAt } = state.draft;
  return (
    <div className="notice" data-tone="warn" role="note">
      <Icon name="pencil" />
      <div className="grow">
        <div className="notice-title">
          <Link to={`/assistants/${id}/versions`}>Draft</Link>: visitors do not see these changes yet
        </div>
        <div className="break">
          {changeWords(changesOf(state.draft))} · {by.name ?? 'the service'}, <When at={changedAt} />
        </div>
        <Group mt="xs">
          <DraftActions id={id} state={state} />
        </Group>
      </div>
    </div>
  );
};
