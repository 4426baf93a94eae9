import { Menu } from '@mantine/core';
import { useState } from 'react';
import { Icon } from '../parts/icon.tsx';
import { choose, readChoice } from './notification.ts';

const WORDS = {
  on: 'Turn notifications off',
  off: 'Turn notifications on',
  blocked: 'Notifications are blocked by the browser',
} as const;

/** Asks for desktop notifications, and only when a person chooses this. */
export const NotifyItem = () => {
  const [choice, setChoice] = useState(readChoice);
  if (choice === 'impossible') return null;
  return (
    <Menu.Item
      leftSection={<Icon name="bell" size={16} />}
      disabled={choice === 'blocked'}
      closeMenuOnClick={false}
      onClick={() => void choose(choice === 'off').then(setChoice)}
    >
      {WORDS[choice]}
    </Menu.Item>
  );
};
