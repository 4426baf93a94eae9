import { Menu, ScrollArea, Tooltip } from '@mantine/core';
import { Icon } from '../../../parts/icon.tsx';
import { IconButton } from '../../../parts/icon-button.tsx';
import { useAgents } from '../agents.ts';
import { useOpenConversation } from '../open-conversation.ts';

/** Who works on the conversation. */
export const AssignMenu = () => {
  const { facts, me, actions, act } = useOpenConversation();
  const { assistantId, assigneeId } = facts;
  const assign = (operatorId: string | null): void => act(actions.assign(operatorId));
  const others = useAgents(assistantId).filter(({ operatorId }) => operatorId !== me.operatorId);
  const mark = (id: string) => (id === assigneeId ? <Icon name="check" size={16} /> : undefined);
  return (
    <Menu position="bottom-end" width={260}>
      <Menu.Target>
        <Tooltip label="Assign">
          <IconButton label="Assign" icon="user" />
        </Tooltip>
      </Menu.Target>
      <Menu.Dropdown aria-label="Assign to">
        <ScrollArea.Autosize mah={320}>
          <Menu.Item onClick={() => assign(me.operatorId)} rightSection={mark(me.operatorId)}>
            Assign to me
          </Menu.Item>
          {others.map(({ operatorId, email }) => (
            <Menu.Item key={operatorId} onClick={() => assign(operatorId)} rightSection={mark(operatorId)}>
              <span className="break">{email}</span>
            </Menu.Item>
          ))}
          {assigneeId !== null && <Menu.Item onClick={() => assign(null)}>Nobody</Menu.Item>}
        </ScrollArea.Autosize>
      </Menu.Dropdown>
    </Menu>
  );
};
