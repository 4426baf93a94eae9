import { NativeSelect, TextInput } from '@mantine/core';
import { RowsField } from '../../parts/rows-field.tsx';
import type { Endpoint } from '../../types.ts';

type Header = Endpoint['headers'][number];

const MOST = 20;
const BLANK: Header = { name: '', value: '', secret: true };

type Props = {
  headers: Header[];
  onChange: (headers: Header[]) => void;
  errorOf: (field: 'headers' | `headers.${string}`) => { error?: string };
};

/** Edits what the requests of an endpoint have in addition. The value of a stored secret header is null. */
export const HeadersField = ({ headers, onChange, errorOf }: Props) => (
  <RowsField
    label="Own headers"
    description="What your server or its gateway needs in each request, such as Authorization."
    {...errorOf('headers')}
    of="header"
    rows={headers}
    most={MOST}
    blank={BLANK}
    onChange={onChange}
  >
    {({ name, value, secret }, index, set) => (
      <>
        <TextInput
          aria-label="Name"
          placeholder="Name"
          value={name}
          onChange={(event) => set({ name: event.currentTarget.value })}
          {...errorOf(`headers.${index}.name`)}
        />
        <NativeSelect
          aria-label="Who may see it"
          data={[
            { value: 'secret', label: 'Secret' },
            { value: 'shown', label: 'Shown' },
          ]}
          value={secret ? 'secret' : 'shown'}
          disabled={value === null}
          onChange={(event) => set({ secret: event.currentTarget.value === 'secret' })}
        />
        <TextInput
          aria-label="Value"
          placeholder={value === null ? '•••• unchanged' : 'Value'}
          value={value ?? ''}
          onChange={(event) => set({ value: event.currentTarget.value })}
          {...errorOf(`headers.${index}.value`)}
        />
      </>
    )}
  </RowsField>
);
