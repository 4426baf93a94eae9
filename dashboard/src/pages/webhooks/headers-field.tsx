import { ActionIcon, Button, Input, NativeSelect, Stack, TextInput } from '@mantine/core';
import { Icon } from '../../parts/icon.tsx';
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
export const HeadersField = ({ headers, onChange, errorOf }: Props) => {
  const set = (index: number, change: Partial<Header>) =>
    onChange(headers.map((header, at) => (at === index ? { ...header, ...change } : header)));
  return (
    <Input.Wrapper
      label="Own headers"
      labelElement="div"
      description="What your server or its gateway needs in each request, such as Authorization."
      {...errorOf('headers')}
    >
      <Stack gap="xs" mt={6}>
        {headers.map((header, index) => (
          <div key={index} className="action-row" role="group" aria-label={`Header ${index + 1}`}>
            <TextInput
              aria-label="Name"
              placeholder="Name"
              value={header.name}
              onChange={(event) => set(index, { name: event.currentTarget.value })}
              {...errorOf(`headers.${index}.name`)}
            />
            <NativeSelect
              aria-label="Who may see it"
              data={[
                { value: 'secret', label: 'Secret' },
                { value: 'shown', label: 'Shown' },
              ]}
              value={header.secret ? 'secret' : 'shown'}
              disabled={header.value === null}
              onChange={(event) => set(index, { secret: event.currentTarget.value === 'secret' })}
            />
            <TextInput
              aria-label="Value"
              placeholder={header.value === null ? '•••• unchanged' : 'Value'}
              value={header.value ?? ''}
              onChange={(event) => set(index, { value: event.currentTarget.value })}
              {...errorOf(`headers.${index}.value`)}
            />
            <ActionIcon
              variant="subtle"
              color="gray"
              size="lg"
              aria-label={`Remove header ${index + 1}`}
              onClick={() => onChange(headers.filter((_one, at) => at !== index))}
            >
              <Icon name="cross" size={16} />
            </ActionIcon>
          </div>
        ))}
        {headers.length < MOST && (
          <Button
            variant="default"
            size="xs"
            className="self-start"
            leftSection={<Icon name="plus" size={14} />}
            onClick={() => onChange([...headers, BLANK])}
          >
            Add a header
          </Button>
        )}
      </Stack>
    </Input.Wrapper>
  );
};
