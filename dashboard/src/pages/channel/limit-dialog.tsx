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
    touches: ['/assistants'],
    done: 'The limit is changed.',
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
      busy={save.isPending}
      problem={save.error}
      fields={form.names}
    >
      <TextInput
        label="Requests a minute"
        description="Of all callers together. More are answered with 429 until the minute is over."
        inputMode="numeric"
        data-autofocus
        {...form.text('limitPerMinute')}
      />
    </FormDialog>
  );
};
