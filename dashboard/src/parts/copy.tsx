import { ActionIcon, Button, Tooltip } from '@mantine/core';
import { useClipboard } from '@mantine/hooks';
import { tellProblem } from '../query.ts';
import { Icon } from './icon.tsx';

const useCopy = (value: string) => {
  const clipboard = useClipboard({ timeout: 1500 });
  const copy = (): void => {
    // Browsers offer no clipboard to pages over plain HTTP from another machine.
    if (!window.isSecureContext)
      return tellProblem(new Error('Your browser allows copying only on HTTPS pages. Select the text instead.'));
    clipboard.copy(value);
  };
  return { copied: clipboard.copied, copy };
};

export const CopyIcon = ({ value, label }: { value: string; label: string }) => {
  const { copied, copy } = useCopy(value);
  return (
    <Tooltip label={copied ? 'Copied' : label}>
      <ActionIcon variant="subtle" color="gray" size="sm" aria-label={label} onClick={copy}>
        <Icon name={copied ? 'check' : 'copy'} size={16} />
      </ActionIcon>
    </Tooltip>
  );
};

export const CopyButton = ({ value, label }: { value: string; label: string }) => {
  const { copied, copy } = useCopy(value);
  return (
    <Button
      variant="default"
      size="xs"
      leftSection={<Icon name={copied ? 'check' : 'copy'} size={15} />}
      onClick={copy}
      aria-live="polite"
    >
      {copied ? 'Copied' : label}
    </Button>
  );
};
