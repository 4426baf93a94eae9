import { Button, Group, Modal, Stack, Text } from '@mantine/core';
import { type ReactNode, useState } from 'react';

type Question = { title: string; body: ReactNode; action: string; danger?: boolean; onConfirm: () => void };

/** Asks for confirmation. `ask(…)` opens the dialog, and `dialog` renders it. */
export const useConfirm = () => {
  const [question, setQuestion] = useState<Question | null>(null);
  const [opened, setOpened] = useState(false);
  const close = () => setOpened(false);
  const dialog = (
    <Modal opened={opened} onClose={close} title={question?.title} closeButtonProps={{ 'aria-label': 'Close' }}>
      <Stack>
        <Text size="sm" component="div">
          {question?.body}
        </Text>
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={close} data-autofocus>
            Cancel
          </Button>
          <Button
            color={question?.danger ? 'red.9' : 'ink'}
            onClick={() => {
              close();
              question?.onConfirm();
            }}
          >
            {question?.action}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
  const ask = (next: Question): void => {
    setQuestion(next);
    // The dialog opens only after the current event. Otherwise the Escape that leaves a form would also close the
    // dialog.
    window.setTimeout(() => setOpened(true));
  };
  return { dialog, ask, asking: opened };
};
