import { Menu } from '@mantine/core';
import type { ReactNode } from 'react';
import { IconButton } from './icon-button.tsx';

/** The menu of actions for a row of a list. */
export const RowMenu = ({ label, children }: { label: string; children: ReactNode }) => (
  <Menu position="bottom-end" width={210}>
    <Menu.Target>
      <IconButton label={label} icon="more" />
    </Menu.Target>
    <Menu.Dropdown>{children}</Menu.Dropdown>
  </Menu>
);
