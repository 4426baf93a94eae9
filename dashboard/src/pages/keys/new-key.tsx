import { TextInput } from '@mantine/core';
import { call } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { useChange } from '../../query.ts';
import type { NewApiKey } from '../../types.ts';

type Props = { path: string; opened: boolean; onClose: () => void; onMade: (made: NewApiKey) => void };

const BLANK = { name: '', limitPerMinute: '60' };

export const NewKey = ({ path, opened, onClose, onMade }: Props) => {
  const create = useChange({
    run: ({ name, limitPerMinute }: typeof BLANK) =>
      call<NewApiKey>('POST', path, { body: { name, limitPerMinute: Number(limitPerMinute) } }),
    touches: ['/assistants/'],
    quiet: true,
    after: (made) => {
      form.reset(BLANK);
      onMade(made);
    },
  });
  const form = useFields(BLANK, create.error);
  return (
    <FormDialog
      title="Create an API key"
      opened={opened}
      onClose={onClose}
      onSend={() => create.mutate(form.values)}
      action="Create key"
      busy={create.isPending}
      problem={create.error}
      fields={form.names}
      disabled={form.values.name.trim() === ''}
    >
      <TextInput
        label="Name"
        description="Who will use it, such as “Shop server”."
        data-autofocus
        maxLength={100}
        {...form.text('name')}
      />
      <TextInput
        label="Requests a minute"
        description="More are answered with 429 until the minute is over."
        inputMode="numeric"
        {...form.text('limitPerMinute')}
      />
    </FormDialog>
  );
};
