import { ActionIcon, Tooltip, useMantineColorScheme } from '@mantine/core';
import { Icon } from '../parts/icon.tsx';

const NEXT = { auto: 'light', light: 'dark', dark: 'auto' } as const;
const SHOWN = {
  auto: { icon: 'screen', words: 'system' },
  light: { icon: 'sun', words: 'light' },
  dark: { icon: 'moon', words: 'dark' },
} as const;

export const ColorScheme = () => {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const { icon, words } = SHOWN[colorScheme];
  return (
    <Tooltip label={`Colours: ${words}`}>
      <ActionIcon
        variant="subtle"
        color="gray"
        aria-label={`Colours: ${words}. Change`}
        onClick={() => setColorScheme(NEXT[colorScheme])}
      >
        <Icon name={icon} />
      </ActionIcon>
    </Tooltip>
  );
};
