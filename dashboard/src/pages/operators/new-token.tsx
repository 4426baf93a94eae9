import { Radio, Stack, TextInput } from '@mantine/core';
import { call } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { useChange } from '../../query.ts';
import type { Me, NewOperatorToken } from '../../types.ts';
import { AssistantsField } from './assistants-field.tsx';

type Fields = { name: string; scope: string; assistantIds: string[] | null };
type Props = { assistants: Me['assistants']; onClose: () => void; onMade: (made: NewOperatorToken) => void };

export const NewToken = ({ assistants, onClose, onMade }: Props) => {
  const create = useChange({
    run: (body: Fields) => call<NewOperatorToken>('POST', '/tokens', { body }),
    invalidates: ['/tokens'],
    quiet: true,
    after: onMade,
  });
  const form = useFields<Fields>({ name: '', scope: 'read', assistantIds: null }, create.error);
  return (
    <FormDialog
      title="Create an operator token"
      opened
      onClose={onClose}
      onSend={() => create.mutate(form.values)}
      action="Create token"
      change={create}
      fields={form.names}
      disabled={form.values.name.trim() === ''}
    >
      <TextInput
        label="Name"
        description="Which program will use it, such as “Deployment”."
        data-autofocus
        maxLength={100}
        {...form.text('name')}
      />
      <Radio.Group label="Scope" {...form.pick('scope')}>
        <Stack gap="sm" mt={6}>
          <Radio value="read" label="Read" description="Can read, but not change anything." />
          <Radio
            value="manage"
            label="Manage"
            description="Can also make changes. Cannot create tokens or invite operators."
          />
        </Stack>
      </Radio.Group>
      <AssistantsField
        assistants={assistants}
        some="It has no other, and nothing of the service as a whole."
        none="None selected: it has no assistants."
        {...form.pick('assistantIds')}
      />
    </FormDialog>
  );
};
