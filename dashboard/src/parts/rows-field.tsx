import { ActionIcon, Button, Input, Stack } from '@mantine/core';
import type { ReactNode } from 'react';
import { Icon } from './icon.tsx';

type Props<Row> = {
  label: string;
  description: string;
  error?: string | undefined;
  /** What one row is called, in lower case. */
  of: string;
  rows: Row[];
  most: number;
  blank: Row;
  onChange: (rows: Row[]) => void;
  /** The fields of a row. `set` changes some of it. */
  children: (row: Row, index: number, set: (change: Partial<Row>) => void) => ReactNode;
};

/** Edits a short list of rows, which can be added and removed. */
export const RowsField = <Row extends object>(props: Props<Row>) => {
  const { label, description, error, of, rows, most, blank, onChange, children } = props;
  const change = (index: number, changed: Partial<Row>) =>
    onChange(rows.map((row, at) => (at === index ? { ...row, ...changed } : row)));
  return (
    <Input.Wrapper label={label} labelElement="div" description={description} error={error}>
      <Stack gap="xs" mt={6}>
        {rows.map((row, index) => (
          <div
            key={index}
            className="action-row"
            role="group"
            aria-label={`${of.charAt(0).toUpperCase()}${of.slice(1)} ${index + 1}`}
          >
            {children(row, index, (changed) => change(index, changed))}
            <ActionIcon
              variant="subtle"
              color="gray"
              size="lg"
              aria-label={`Remove ${of} ${index + 1}`}
              onClick={() => onChange(rows.filter((_one, at) => at !== index))}
            >
              <Icon name="cross" size={16} />
            </ActionIcon>
          </div>
        ))}
        {rows.length < most && (
          <Button
            variant="default"
            size="xs"
            className="self-start"
            leftSection={<Icon name="plus" size={14} />}
            onClick={() => onChange([...rows, blank])}
          >
            Add a {of}
          </Button>
        )}
      </Stack>
    </Input.Wrapper>
  );
};
