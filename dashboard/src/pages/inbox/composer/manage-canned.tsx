import { ActionIcon, Button, Group, Modal, Stack, Textarea, TextInput } from '@mantine/core';
import { useState } from 'react';
import { at, call } from '../../../api.ts';
import { FormProblem, onSubmit, useFields } from '../../../parts/form.tsx';
import { Icon } from '../../../parts/icon.tsx';
import { Empty, Shown } from '../../../parts/states.tsx';
import { useChange, useRead } from '../../../query.ts';
import type { CannedReplies } from '../../../types.ts';
import { cannedPath } from './canned-path.ts';

type CannedReply = CannedReplies['cannedReplies'][number];
const NEW = { title: '', content: '' };

type FormProps = { assistantId: string; known: CannedReply | null; onDone: () => void };

const CannedForm = ({ assistantId, known, onDone }: FormProps) => {
  const path = cannedPath(assistantId);
  const save = useChange({
    run: (body: typeof NEW) =>
      known ? call('PATCH', at`/canned-replies/${known.cannedReplyId}`, { body }) : call('POST', path, { body }),
    invalidates: [path],
    quiet: true,
    after: onDone,
  });
  const fields = useFields(known ? { title: known.title, content: known.content } : NEW, save.error);
  return (
    <form onSubmit={onSubmit(() => save.mutate(fields.values))} noValidate>
      <Stack gap="sm">
        <FormProblem problem={save.error} fields={fields.names} />
        <TextInput label="Title" maxLength={80} {...fields.text('title')} />
        <Textarea
          label="Text"
          description="{{session_id}}, {{language}}, {{agent}} and {{attribute.NAME}} are filled in."
          autosize
          minRows={3}
          maxRows={10}
          maxLength={4000}
          {...fields.text('content')}
        />
        <Group gap="xs" justify="flex-end">
          <Button variant="default" onClick={onDone}>
            Cancel
          </Button>
          <Button type="submit" loading={save.isPending}>
            Save
          </Button>
        </Group>
      </Stack>
    </form>
  );
};

const CannedList = ({ assistantId, onEdit }: { assistantId: string; onEdit: (one: CannedReply | null) => void }) => {
  const path = cannedPath(assistantId);
  const read = useRead<CannedReplies>(path);
  const remove = useChange({
    run: ({ cannedReplyId }: CannedReply) => call<void>('DELETE', at`/canned-replies/${cannedReplyId}`),
    invalidates: [path],
    done: 'The canned reply is removed.',
  });
  return (
    <Shown read={read}>
      {({ cannedReplies }) => (
        <Stack gap="sm">
          {cannedReplies.length === 0 && (
            <Empty icon="quote" title="No canned replies">
              A canned reply is a text that you often need. All operators of the assistant share them.
            </Empty>
          )}
          <ul className="rows" aria-label="Canned replies">
            {cannedReplies.map((one) => (
              <li key={one.cannedReplyId} className="row">
                <span className="row-main">
                  <span className="row-title block">{one.title}</span>
                  <span className="row-sub clip block">{one.content}</span>
                </span>
                <ActionIcon variant="subtle" color="gray" aria-label={`Edit ${one.title}`} onClick={() => onEdit(one)}>
                  <Icon name="pencil" size={16} />
                </ActionIcon>
                <ActionIcon
                  variant="subtle"
                  color="gray"
                  aria-label={`Remove ${one.title}`}
                  onClick={() => remove.mutate(one)}
                >
                  <Icon name="trash" size={16} />
                </ActionIcon>
              </li>
            ))}
          </ul>
          <Button
            className="self-start"
            variant="default"
            leftSection={<Icon name="plus" size={16} />}
            onClick={() => onEdit(null)}
          >
            New canned reply
          </Button>
        </Stack>
      )}
    </Shown>
  );
};

/** The canned replies of an assistant: add, change and remove. */
export const CannedEditor = ({ assistantId }: { assistantId: string }) => {
  const [edited, setEdited] = useState<CannedReply | null | undefined>(undefined);
  return edited === undefined ? (
    <CannedList assistantId={assistantId} onEdit={setEdited} />
  ) : (
    <CannedForm assistantId={assistantId} known={edited} onDone={() => setEdited(undefined)} />
  );
};

type Props = { assistantId: string; opened: boolean; onClose: () => void };

/** The canned replies in a dialog, which starts with the list each time it opens. */
export const ManageCanned = ({ assistantId, opened, onClose }: Props) => (
  <Modal
    opened={opened}
    onClose={onClose}
    title="Canned replies"
    size="lg"
    closeButtonProps={{ 'aria-label': 'Close' }}
  >
    <CannedEditor assistantId={assistantId} />
  </Modal>
);
