import { Kbd, Modal, Switch, Table } from '@mantine/core';
import { SHORTCUTS, useShortcutsOn } from './keys.ts';

const MORE = [
  ['Ctrl or ⌘ and Enter', 'Send what you wrote'],
  ['/ in an empty reply', 'Insert a canned reply'],
  ['Ctrl or ⌘ and K', 'Go to another page'],
] as const;

/** The sheet of keyboard shortcuts. */
export const Help = ({ opened, onClose }: { opened: boolean; onClose: () => void }) => {
  const [on, set] = useShortcutsOn();
  return (
    <Modal opened={opened} onClose={onClose} title="Keyboard shortcuts" closeButtonProps={{ 'aria-label': 'Close' }}>
      <Table verticalSpacing={6} mb="md">
        <Table.Tbody>
          {[...SHORTCUTS, ...MORE].map(([key, words]) => (
            <Table.Tr key={key}>
              <Table.Td>
                <Kbd>{key}</Kbd>
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
