import { ActionIcon, Menu } from '@mantine/core';
import type { ReactNode } from 'react';
import { Icon } from './icon.tsx';

/** The menu of actions for a row of a list. */
export const RowMenu = ({ label, children }: { label: string; children: ReactNode }) => (
  <Menu position="bottom-end" width={210}>
    <Menu.Target>
      <ActionIcon variant="subtle" color="gray" size="lg" aria-label={label}>
        <Icon name="more" />
      </ActionIcon>
    </Menu.Target>
    <Menu.Dropdown>{children}</Menu.Dropdown>
  </Menu>
);
