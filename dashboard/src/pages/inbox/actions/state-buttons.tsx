import { Button, Menu } from '@mantine/core';
import { IconButton } from '../../../parts/icon-button.tsx';
import { useOpenConversation } from '../open-conversation.ts';

/** The next steps of a conversation in its state. */
export const StateButtons = () => {
  const { facts, me, actions, act } = useOpenConversation();
  const { status, assigneeId } = facts;
  if (status === 'resolved')
    return (
      <Button size="xs" variant="default" onClick={() => act(actions.reopen())}>
        Reopen
      </Button>
    );
  const takeOver = (): void => {
    act(actions.escalate());
    act(actions.assign(me.operatorId));
  };
  const resolve = (): void => act(actions.resolve(me.operatorId));
  if (status === 'open')
    return (
      <>
        <Button size="xs" variant="default" className="second-action" onClick={resolve}>
          Resolve
        </Button>
        <Button size="xs" onClick={takeOver}>
          Take over
        </Button>
      </>
    );
  return (
    <>
      {assigneeId === null && (
        <Button
          size="xs"
          variant="default"
          className="second-action"
          onClick={() => act(actions.assign(me.operatorId))}
        >
          Assign to me
        </Button>
      )}
      <Button size="xs" onClick={resolve}>
        Resolve
      </Button>
    </>
  );
};

/** The rarer steps, and those that a narrow screen has no room for. */
export const MoreActions = () => {
  const { facts, me, actions, act } = useOpenConversation();
  const { status } = facts;
  if (status === 'resolved') return null;
  return (
    <Menu position="bottom-end" width={220}>
      <Menu.Target>
        <IconButton label="More actions" icon="more" />
      </Menu.Target>
      <Menu.Dropdown>
        {status === 'open' ? (
          <>
            <Menu.Item onClick={() => act(actions.escalate())}>Escalate to a person</Menu.Item>
            <Menu.Item onClick={() => act(actions.resolve(me.operatorId))}>Resolve</Menu.Item>
          </>
        ) : (
          <Menu.Item onClick={() => act(actions.handBack())}>Hand back to the assistant</Menu.Item>
        )}
      </Menu.Dropdown>
    </Menu>
  );
};
