import { Radio, Stack, TextInput } from '@mantine/core';
import { call } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { useChange } from '../../query.ts';
import type { Me, OperatorLink } from '../../types.ts';
import { AssistantsField } from './assistants-field.tsx';

type Fields = { email: string; role: string; assistantIds: string[] | null };
type Props = { assistants: Me['assistants']; onClose: () => void; onMade: (made: OperatorLink) => void };

export const Invite = ({ assistants, onClose, onMade }: Props) => {
  const invite = useChange({
    run: ({ assistantIds, ...body }: Fields) =>
      call<OperatorLink>('POST', '/operators', {
        body: { ...body, ...(body.role === 'agent' && { assistantIds }) },
      }),
    invalidates: ['/operators'],
    quiet: true,
    after: onMade,
  });
  const form = useFields<Fields>({ email: '', role: 'agent', assistantIds: null }, invite.error);
  return (
    <FormDialog
      title="Invite an operator"
      opened
      onClose={onClose}
      onSend={() => invite.mutate(form.values)}
      action="Create the invitation"
      change={invite}
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
      {form.values.role === 'agent' && <AssistantsField assistants={assistants} {...form.pick('assistantIds')} />}
    </FormDialog>
  );
};
