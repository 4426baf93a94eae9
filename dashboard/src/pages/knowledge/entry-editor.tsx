import { Button, Group, Modal, Stack, TagsInput, Textarea, TextInput } from '@mantine/core';
import { at, call, withQuery } from '../../api.ts';
import { useConfirm } from '../../parts/confirm.tsx';
import { FormProblem, onSubmit, useFields } from '../../parts/form.tsx';
import { tellProblem, useChange } from '../../query.ts';
import type { KnowledgeEntry } from '../../types.ts';
import { ActionsField } from './actions-field.tsx';

const BLANK = {
  question: '',
  variants: '',
  answer: '',
  language: '',
  tags: [] as string[],
  actions: [] as KnowledgeEntry['actions'],
};
type Fields = typeof BLANK;

/** The beginning of a new entry. `fromMiss` is the group of questions that it answers. */
export type EntryDraft = Pick<KnowledgeEntry, 'question' | 'variants' | 'answer' | 'language'> & { fromMiss?: string };

const fieldsOf = (entry: KnowledgeEntry | null, draft?: EntryDraft): Fields =>
  entry === null
    ? {
        ...BLANK,
        ...(draft && {
          question: draft.question,
          variants: draft.variants.join('\n'),
          answer: draft.answer,
          language: draft.language ?? '',
        }),
      }
    : {
        question: entry.question,
        variants: entry.variants.join('\n'),
        answer: entry.answer,
        language: entry.language ?? '',
        tags: entry.tags,
        actions: entry.actions,
      };

const toBody = (fields: Fields) => ({
  ...fields,
  variants: fields.variants
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean),
  language: fields.language.trim() === '' ? null : fields.language.trim(),
});

type Props = {
  path: string;
  entry: KnowledgeEntry | null;
  draft?: EntryDraft;
  /** With drafts: the revision of the draft that the list shows. */
  seen?: number | undefined;
  /** True if the entry would be the only change of a draft, so that it can be published at once. */
  mayPublish?: boolean;
  onClose: () => void;
};

const useEntryChanges = ({ path, entry, draft, seen, onClose }: Props) => {
  const known = entry ? { seen } : {};
  const own = entry && path + at`/${entry.entryId}`;
  const invalidates = ['/assistants/'];
  const save = useChange({
    run: async ({ fields, publish }: { fields: Fields; publish: boolean }) => {
      await call<KnowledgeEntry>(own === null ? 'POST' : 'PUT', withQuery(own ?? path, known), {
        body: { ...toBody(fields), ...(draft?.fromMiss !== undefined && { fromMiss: draft.fromMiss }) },
      });
      if (!publish) return null;
      const whole = { seen: seen === undefined ? null : seen + 1 };
      // What is refused is in the draft all the same, so the form must not send it again.
      const published = call('POST', path.replace(/knowledge$/, 'draft/publish'), { body: whole });
      return published.then(
        () => null,
        (problem: unknown) => ({ problem }),
      );
    },
    invalidates,
    done: (refused, { publish }) => {
      if (refused) return 'The entry is in the draft.';
      if (publish) return 'The entry is published.';
      return own === null ? 'The entry is added.' : 'The entry is saved.';
    },
    quiet: true,
    after: (refused) => {
      if (refused) tellProblem(refused.problem);
      onClose();
    },
  });
  const remove = useChange({
    run: () => call<void>('DELETE', withQuery(own ?? path, known)),
    invalidates,
    done: 'The entry is removed.',
    after: onClose,
  });
  return { save, remove };
};

/** Edits one entry. A new form is created for each entry, so that it starts with the stored values. */
export const EntryEditor = (props: Props) => {
  const { entry, draft, mayPublish = false, onClose } = props;
  const { save, remove } = useEntryChanges(props);
  const { dialog, ask, asking } = useConfirm();
  const form = useFields(fieldsOf(entry, draft), save.error);
  const edited = JSON.stringify(form.values) !== JSON.stringify(fieldsOf(entry, draft));
  const changed = edited || draft !== undefined;
  const close = (): void => {
    if (!edited) return onClose();
    ask({
      title: 'Leave without saving?',
      body: 'Your changes are not saved.',
      action: 'Leave',
      danger: true,
      onConfirm: onClose,
    });
  };
  const { question, answer } = form.values;
  const mayBeSaved = changed && question.trim() !== '' && answer.trim() !== '';
  return (
    <Modal
      opened
      onClose={close}
      closeOnEscape={!asking}
      title={entry ? 'Edit the entry' : 'Add an entry'}
      size="lg"
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <form onSubmit={onSubmit(() => save.mutate({ fields: form.values, publish: false }))} noValidate>
        <Stack gap="md">
          <FormProblem problem={save.error} fields={form.names} />
          <TextInput label="Question" data-autofocus maxLength={500} {...form.text('question')} />
          <Textarea
            label="Other ways to ask"
            description="One per line. Two or three with different words help most."
            autosize
            minRows={2}
            maxRows={8}
            {...form.text('variants')}
          />
          <Textarea label="Answer" autosize minRows={4} maxRows={14} maxLength={4000} {...form.text('answer')} />
          <ActionsField
            actions={form.values.actions}
            onChange={(actions) => form.set('actions', actions)}
            problem={save.error}
          />
          <Group grow align="flex-start" className="pairs">
            <TextInput
              label="Language"
              description="Of the answer, for example de. Leave empty to detect it."
              {...form.text('language')}
            />
            <TagsInput
              label="Tags"
              description="Words that visitors also use for it. Not shown to them."
              {...form.pick('tags')}
            />
          </Group>
          <Group justify="space-between" gap="xs" wrap="wrap-reverse">
            {entry ? (
              <Button
                variant="subtle"
                className="danger"
                loading={remove.isPending}
                onClick={() =>
                  ask({
                    title: 'Remove this entry?',
                    body: `The assistant will no longer use “${entry.question}”. This cannot be undone.`,
                    action: 'Remove entry',
                    danger: true,
                    onConfirm: () => remove.mutate(),
                  })
                }
              >
                Remove…
              </Button>
            ) : (
              <span />
            )}
            <Group gap="xs" ml="auto">
              <Button variant="default" onClick={close}>
                Cancel
              </Button>
              {mayPublish && (
                <Button
                  variant="default"
                  loading={save.isPending}
                  disabled={!mayBeSaved}
                  onClick={() => save.mutate({ fields: form.values, publish: true })}
                >
                  Save and publish
                </Button>
              )}
              <Button type="submit" loading={save.isPending} disabled={!mayBeSaved}>
                {entry ? 'Save entry' : 'Add entry'}
              </Button>
            </Group>
          </Group>
        </Stack>
      </form>
      {dialog}
    </Modal>
  );
};
