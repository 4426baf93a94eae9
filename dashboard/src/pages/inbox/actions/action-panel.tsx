import { Popover, Tooltip } from '@mantine/core';
import type { ReactNode } from 'react';
import type { IconName } from '../../../parts/icon.tsx';
import { IconButton } from '../../../parts/icon-button.tsx';

type Props = {
  label: string;
  /** The key that opens the panel, shown in the tooltip. */
  shortcut: string;
  icon: IconName;
  /** What the panel is for. */
  title: string;
  opened: boolean;
  onOpen: (opened: boolean) => void;
  children: ReactNode;
};

/** A button in the head of a conversation that opens a small panel. */
export const ActionPanel = ({ label, shortcut, icon, title, opened, onOpen, children }: Props) => (
  <Popover opened={opened} onChange={onOpen} position="bottom-end" width={280} trapFocus shadow="md">
    <Popover.Target>
      <Tooltip label={`${label} (${shortcut})`}>
        <IconButton label={label} icon={icon} onClick={() => onOpen(!opened)} />
      </Tooltip>
    </Popover.Target>
    <Popover.Dropdown aria-label={title}>{children}</Popover.Dropdown>
  </Popover>
);
