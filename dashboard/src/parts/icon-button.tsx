import { ActionIcon, type ActionIconProps } from '@mantine/core';
import type { ComponentPropsWithRef } from 'react';
import { Icon, type IconName } from './icon.tsx';

type Props = ActionIconProps &
  Omit<ComponentPropsWithRef<'button'>, keyof ActionIconProps | 'children'> & { label: string; icon: IconName };

/** A button that shows only an icon. */
export const IconButton = ({ label, icon, ...rest }: Props) => (
  <ActionIcon variant="subtle" color="gray" size="lg" aria-label={label} {...rest}>
    <Icon name={icon} />
  </ActionIcon>
);
