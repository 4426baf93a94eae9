import { Kbd, Modal, Switch, Table } from '@mantine/core';
import { Fragment } from 'react';
import { SHORTCUTS, useShortcutsOn } from './keys.ts';

const MORE = [
  [['Ctrl or ⌘', 'Enter'], 'Send what you wrote'],
  [['/'], 'In an empty reply: insert a canned reply'],
  [['Ctrl or ⌘', 'K'], 'Go to another page'],
] as const;
const ALL = [...SHORTCUTS.map(([key, words]) => [[key], words] as const), ...MORE];

/** The sheet of keyboard shortcuts. */
export const Help = ({ opened, onClose }: { opened: boolean; onClose: () => void }) => {
  const [on, set] = useShortcutsOn();
  return (
    <Modal opened={opened} onClose={onClose} title="Keyboard shortcuts" closeButtonProps={{ 'aria-label': 'Close' }}>
      <Table verticalSpacing={6} mb="md">
        <Table.Tbody>
          {ALL.map(([keys, words]) => (
            <Table.Tr key={words}>
              <Table.Td>
                {keys.map((key, nth) => (
                  <Fragment key={key}>
                    {nth > 0 && ' + '}
                    <Kbd className="nowrap">{key}</Kbd>
                  </Fragment>
                ))}
              </Table.Td>
              <Table.Td>{words}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      <Switch
        label="Use single keys as shortcuts"
        checked={on}
        onChange={(event) => set(event.currentTarget.checked)}
      />
    </Modal>
  );
};
