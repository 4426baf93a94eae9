import { Button, Group, Modal, Stack, Text } from '@mantine/core';
import type { ReactNode } from 'react';
import { Code } from './code.tsx';
import { CopyButton } from './copy.tsx';
import { Notice } from './notice.tsx';

export type Secret = {
  title: string;
  label: string;
  value: string;
  note?: ReactNode;
  sample?: { label: string; text: string };
};

/**
 * Shows a secret that cannot be shown again. Only the button closes the dialog, because a click outside by accident
 * would lose the secret.
 */
export const SecretDialog = ({ secret, onClose }: { secret: Secret | null; onClose: () => void }) => (
  <Modal
    opened={secret !== null}
    onClose={onClose}
    title={secret?.title}
    size="lg"
    closeOnClickOutside={false}
    closeOnEscape={false}
    withCloseButton={false}
  >
    {secret && (
      <Stack>
        <Notice tone="warn">This is shown only once. Copy it before you continue.</Notice>
        <div>
          <Text size="sm" fw={600} mb={4}>
            {secret.label}
          </Text>
          <div className="secret" aria-label={secret.label} role="group" tabIndex={0}>
            {secret.value}
          </div>
        </div>
        {secret.note !== undefined && (
          <Text size="sm" c="dimmed" component="div">
            {secret.note}
          </Text>
        )}
        {secret.sample && (
          <div>
            <Text size="sm" fw={600} mb={4}>
              {secret.sample.label}
            </Text>
            <Code text={secret.sample.text} label={secret.sample.label} />
          </div>
        )}
        <Group justify="flex-end" gap="xs">
          <CopyButton
            value={secret.value}
            label={`Copy the ${secret.label.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase())}`}
          />
          <Button onClick={onClose} data-autofocus>
            I have saved it
          </Button>
        </Group>
      </Stack>
    )}
  </Modal>
);
