import { Button, Group, Modal, Stack } from '@mantine/core';
import type { ReactNode } from 'react';
import { FormProblem, onSubmit } from './form.tsx';

type DialogProps = {
  title: string;
  opened: boolean;
  onClose: () => void;
  onSend: () => void;
  action: string;
  /** What the form sends. */
  change: { isPending: boolean; error: unknown };
  /** The fields that show their errors themselves. */
  fields?: readonly string[];
  size?: string;
  disabled?: boolean;
  danger?: boolean;
  children: ReactNode;
};

/** A form in a dialog, sent by its button or Enter. Errors are shown at their fields or above the form. */
export const FormDialog = (props: DialogProps) => (
  <Modal
    opened={props.opened}
    onClose={props.onClose}
    title={props.title}
    size={props.size ?? 'md'}
    closeButtonProps={{ 'aria-label': 'Close' }}
  >
    <form onSubmit={onSubmit(props.onSend)} noValidate>
      <Stack gap="md">
        <FormProblem problem={props.change.error} fields={props.fields ?? []} />
        {props.children}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={props.onClose}>
            Cancel
          </Button>
          <Button
            type="submit"
            loading={props.change.isPending}
            disabled={props.disabled ?? false}
            color={props.danger ? 'red.9' : 'ink'}
          >
            {props.action}
          </Button>
        </Group>
      </Stack>
    </form>
  </Modal>
);
