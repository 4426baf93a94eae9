import { ActionIcon, Menu, ScrollArea, Tooltip } from '@mantine/core';
import { Icon } from '../../../parts/icon.tsx';
import type { Me } from '../../../types.ts';
import { useAgents } from '../agents.ts';

type Props = {
  assistantId: string;
  assigneeId: string | null;
  me: Me;
  onAssign: (operatorId: string | null) => void;
};

/** Who works on the conversation. */
export const AssignMenu = ({ assistantId, assigneeId, me, onAssign }: Props) => {
  const others = useAgents(assistantId).filter(({ operatorId }) => operatorId !== me.operatorId);
  const mark = (id: string) => (id === assigneeId ? <Icon name="check" size={16} /> : undefined);
  return (
    <Menu position="bottom-end" width={260}>
      <Menu.Target>
        <Tooltip label="Assign">
          <ActionIcon variant="subtle" color="gray" size="lg" aria-label="Assign">
            <Icon name="user" />
          </ActionIcon>
        </Tooltip>
      </Menu.Target>
      <Menu.Dropdown aria-label="Assign to">
        <ScrollArea.Autosize mah={320}>
          <Menu.Item onClick={() => onAssign(me.operatorId)} rightSection={mark(me.operatorId)}>
            Assign to me
          </Menu.Item>
          {others.map(({ operatorId, email }) => (
            <Menu.Item key={operatorId} onClick={() => onAssign(operatorId)} rightSection={mark(operatorId)}>
              <span className="break">{email}</span>
            </Menu.Item>
          ))}
          {assigneeId !== null && <Menu.Item onClick={() => onAssign(null)}>Nobody</Menu.Item>}
        </ScrollArea.Autosize>
      </Menu.Dropdown>
    </Menu>
  );
};
