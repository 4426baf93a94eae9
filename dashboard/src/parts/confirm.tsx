import { Button, Group, Modal, Stack, Text } from '@mantine/core';
import { type ReactNode, useState } from 'react';

type Question = { title: string; body: ReactNode; action: string; danger?: boolean; onConfirm: () => void };

/** Asks before what cannot be undone: `ask(…)` opens the dialog, which stands where `dialog` is put. */
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
    // Not within the event that asked: an Escape that leaves a form would answer at once.
    window.setTimeout(() => setOpened(true));
  };
  return { dialog, ask, asking: opened };
};
