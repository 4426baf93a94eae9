import { NativeSelect, TextInput } from '@mantine/core';
import { RowsField } from '../../parts/rows-field.tsx';
import { fieldProblem } from '../../problem.ts';
import type { KnowledgeEntry } from '../../types.ts';

type Action = KnowledgeEntry['actions'][number];

const MOST = 5;
const TYPES: { value: Action['type']; label: string; payload: string }[] = [
  { value: 'link', label: 'Link', payload: 'https://… or /path' },
  { value: 'reply', label: 'Reply', payload: 'The text to send' },
  { value: 'escalate', label: 'Ask a person', payload: 'The reason, such as sales' },
  { value: 'phone', label: 'Phone', payload: '+49 30 123456' },
  { value: 'email', label: 'Email', payload: 'help@example.com' },
];

const BLANK: Action = { label: '', type: 'link', payload: '' };

type Props = { actions: Action[]; onChange: (actions: Action[]) => void; problem: unknown };

/** Edits the buttons that are shown with the answer. */
export const ActionsField = ({ actions, onChange, problem }: Props) => {
  const errorOf = (index: number, name: keyof Action) => {
    const error = fieldProblem(problem, `actions.${index}.${name}`);
    return error === undefined ? {} : { error };
  };
  return (
    <RowsField
      label="Buttons"
      description="Shown under the answer where the channel supports buttons."
      of="button"
      rows={actions}
      most={MOST}
      blank={BLANK}
      onChange={onChange}
    >
      {({ label, type, payload }, index, set) => (
        <>
          <TextInput
            aria-label="Label"
            placeholder="Label"
            maxLength={80}
            value={label}
            onChange={(event) => set({ label: event.currentTarget.value })}
            {...errorOf(index, 'label')}
          />
          <NativeSelect
            aria-label="Type"
            data={TYPES.map((one) => ({ value: one.value, label: one.label }))}
            value={type}
            onChange={(event) => set({ type: event.currentTarget.value as Action['type'] })}
            {...errorOf(index, 'type')}
          />
          <TextInput
            aria-label="Value"
            placeholder={TYPES.find(({ value }) => value === type)?.payload}
            value={payload}
            onChange={(event) => set({ payload: event.currentTarget.value })}
            {...errorOf(index, 'payload')}
          />
        </>
      )}
    </RowsField>
  );
};
