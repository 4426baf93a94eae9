import { ActionIcon, Button, Input, NativeSelect, Stack, TextInput } from '@mantine/core';
import { Icon } from '../../parts/icon.tsx';
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
  const set = (index: number, change: Partial<Action>) =>
    onChange(actions.map((action, at) => (at === index ? { ...action, ...change } : action)));
  const errorOf = (index: number, name: keyof Action) => {
    const error = fieldProblem(problem, `actions.${index}.${name}`);
    return error === undefined ? {} : { error };
  };
  return (
    <Input.Wrapper
      label="Buttons"
      labelElement="div"
      description="Shown under the answer where the channel supports buttons."
    >
      <Stack gap="xs" mt={6}>
        {actions.map((action, index) => (
          <div key={index} className="action-row" role="group" aria-label={`Button ${index + 1}`}>
            <TextInput
              aria-label="Label"
              placeholder="Label"
              maxLength={80}
              value={action.label}
              onChange={(event) => set(index, { label: event.currentTarget.value })}
              {...errorOf(index, 'label')}
            />
            <NativeSelect
              aria-label="Type"
              data={TYPES.map(({ value, label }) => ({ value, label }))}
              value={action.type}
              onChange={(event) => set(index, { type: event.currentTarget.value as Action['type'] })}
              {...errorOf(index, 'type')}
            />
            <TextInput
              aria-label="Value"
              placeholder={TYPES.find(({ value }) => value === action.type)?.payload}
              value={action.payload}
              onChange={(event) => set(index, { payload: event.currentTarget.value })}
              {...errorOf(index, 'payload')}
            />
            <ActionIcon
              variant="subtle"
              color="gray"
              size="lg"
              aria-label={`Remove button ${index + 1}`}
              onClick={() => onChange(actions.filter((_one, at) => at !== index))}
            >
              <Icon name="cross" size={16} />
            </ActionIcon>
          </div>
        ))}
        {actions.length < MOST && (
          <Button
            variant="default"
            size="xs"
            className="self-start"
            leftSection={<Icon name="plus" size={14} />}
            onClick={() => onChange([...actions, BLANK])}
          >
            Add a button
          </Button>
        )}
      </Stack>
    </Input.Wrapper>
  );
};
