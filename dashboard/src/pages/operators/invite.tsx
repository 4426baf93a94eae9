import { Radio, Stack, TextInput } from '@mantine/core';
import { call } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { useChange } from '../../query.ts';
import type { OperatorLink } from '../../types.ts';

export const Invite = ({ onClose, onMade }: { onClose: () => void; onMade: (made: OperatorLink) => void }) => {
  const invite = useChange({
    run: (body: { email: string; role: string }) => call<OperatorLink>('POST', '/operators', { body }),
    touches: ['/operators'],
    quiet: true,
    after: onMade,
  });
  const form = useFields({ email: '', role: 'agent' }, invite.error);
  return (
    <FormDialog
      title="Invite an operator"
      opened
      onClose={onClose}
      onSend={() => invite.mutate(form.values)}
      action="Make the invitation"
      busy={invite.isPending}
      problem={invite.error}
      fields={form.names}
      disabled={form.values.email.trim() === ''}
    >
      <TextInput label="Email" type="email" autoComplete="off" data-autofocus {...form.text('email')} />
      <Radio.Group label="Role" {...form.pick('role')}>
        <Stack gap="sm" mt={6}>
          <Radio value="agent" label="Agent" description="Answers conversations and tries the assistants." />
          <Radio value="owner" label="Owner" description="Sees and changes everything." />
        </Stack>
      </Radio.Group>
    </FormDialog>
  );
};
