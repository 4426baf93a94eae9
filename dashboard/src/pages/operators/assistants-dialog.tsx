import { at, call } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { useChange } from '../../query.ts';
import type { Me, Operator } from '../../types.ts';
import { AssistantsField } from './assistants-field.tsx';

type Fields = { assistantIds: string[] | null };
type Props = { one: Operator; assistants: Me['assistants']; onClose: () => void };

export const AssistantsDialog = ({ one, assistants, onClose }: Props) => {
  const save = useChange({
    run: (body: Fields) => call<Operator>('PATCH', at`/operators/${one.operatorId}`, { body }),
    invalidates: ['/operators'],
    done: ({ email }) => `${email} is saved.`,
    quiet: true,
    after: onClose,
  });
  const form = useFields<Fields>({ assistantIds: one.assistantIds }, save.error);
  return (
    <FormDialog
      title={one.email}
      opened
      onClose={onClose}
      onSend={() => save.mutate(form.values)}
      action="Save"
      change={save}
      fields={form.names}
    >
      <AssistantsField assistants={assistants} {...form.pick('assistantIds')} />
    </FormDialog>
  );
};
