import { MultiSelect, Radio, Stack } from '@mantine/core';
import type { Me } from '../../types.ts';

type Props = {
  assistants: Me['assistants'];
  value: string[] | null;
  onChange: (value: string[] | null) => void;
  error?: string;
  /** The explanation that is shown when only some assistants are selected. */
  some?: string;
  none?: string;
};

const SOME = 'They do not see the others.';
const NONE = 'None selected: they see no assistants.';

/** A field that allows either all assistants, including future ones, or only selected ones. */
export const AssistantsField = ({ assistants, value, onChange, error, some = SOME, none = NONE }: Props) => (
  <Stack gap="sm">
    <Radio.Group
      label="Assistants"
      value={value === null ? 'all' : 'some'}
      onChange={(choice) => onChange(choice === 'all' ? null : [])}
      {...(value === null && error !== undefined && { error })}
    >
      <Stack gap="sm" mt={6}>
        <Radio value="all" label="All assistants" description="Including new ones." />
        <Radio value="some" label="Only some" description={some} />
      </Stack>
    </Radio.Group>
    {value !== null && (
      <MultiSelect
        aria-label="Their assistants"
        placeholder={value.length === 0 ? 'Choose assistants' : ''}
        data={assistants.map(({ assistantId, name }) => ({ value: assistantId, label: name }))}
        value={value}
        onChange={onChange}
        searchable
        hidePickedOptions
        nothingFoundMessage="No other assistant"
        maxDropdownHeight={220}
        {...(value.length === 0 && { description: none })}
        {...(error !== undefined && { error })}
      />
    )}
  </Stack>
);
