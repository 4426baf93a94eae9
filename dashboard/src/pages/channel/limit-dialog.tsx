import { TextInput } from '@mantine/core';
import { call } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { useChange } from '../../query.ts';
import type { Channel } from '../../types.ts';

type Props = { path: string; channel: Channel; onClose: () => void };

export const LimitDialog = ({ path, channel, onClose }: Props) => {
  const save = useChange({
    run: (limit: string) => call<Channel>('PATCH', path, { body: { limitPerMinute: Number(limit) } }),
    invalidates: ['/assistants'],
    done: 'The limit is saved.',
    quiet: true,
    after: onClose,
  });
  const form = useFields({ limitPerMinute: String(channel.limitPerMinute) }, save.error);
  return (
    <FormDialog
      title="Change the limit"
      opened
      onClose={onClose}
      onSend={() => save.mutate(form.values.limitPerMinute)}
      action="Save"
      change={save}
      fields={form.names}
    >
      <TextInput
        label="Requests per minute"
        description="For all callers together. Further requests get 429 until the minute ends."
        inputMode="numeric"
        data-autofocus
        {...form.text('limitPerMinute')}
      />
    </FormDialog>
  );
};
