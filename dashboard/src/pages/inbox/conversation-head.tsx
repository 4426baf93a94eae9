import { ActionIcon, Button, Group, Menu, Tooltip } from '@mantine/core';
import { Icon } from '../../parts/icon.tsx';
import { Status } from '../../parts/status.tsx';
import type { Me } from '../../types.ts';
import type { actionsOn } from './actions/actions.ts';
import { AssignMenu } from './actions/assign-menu.tsx';
import type { Act } from './actions/change.ts';
import { SnoozeMenu } from './actions/snooze-menu.tsx';
import { TagMenu } from './actions/tag-menu.tsx';
import { Waiting } from './list/waiting.tsx';
import { PresentOperators } from './present.tsx';
import type { ConversationFacts } from './thread/thread.ts';
import { STATUS_TONES, STATUS_WORDS } from './words.ts';

export type Panel = 'tag' | 'snooze' | null;

type Props = {
  facts: ConversationFacts;
  me: Me;
  actions: ReturnType<typeof actionsOn>;
  act: (act: Act) => void;
  panel: Panel;
  onPanel: (panel: Panel) => void;
  onBack: () => void;
  onDetails: () => void;
};

const Main = ({ facts: { status, assigneeId }, me, actions, act }: Props) => {
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

const More = ({ facts: { status }, me, actions, act }: Props) => {
  if (status === 'resolved') return null;
  return (
    <Menu position="bottom-end" width={220}>
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" size="lg" aria-label="More actions">
          <Icon name="more" />
        </ActionIcon>
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

/** Whose conversation it is, and what can be done with it. */
export const ConversationHead = (props: Props) => {
  const { facts, me, actions, act, panel, onPanel, onBack, onDetails } = props;
  const open = (name: Panel) => (opened: boolean) => onPanel(opened ? name : null);
  return (
    <header className="conversation-head">
      <ActionIcon
        className="only-narrow"
        variant="subtle"
        color="gray"
        size="lg"
        aria-label="Back to the list"
        onClick={onBack}
      >
        <Icon name="left" />
      </ActionIcon>
      <div className="conversation-name">
        <h2 className="clip">{facts.sessionId}</h2>
        <Status tone={STATUS_TONES[facts.status]}>
          {STATUS_WORDS[facts.status]}
          {facts.waitingSince !== null && (
            <>
              , <Waiting since={facts.waitingSince} />
            </>
          )}
        </Status>
        <PresentOperators conversationId={facts.conversationId} />
      </div>
      <Group gap={4} wrap="nowrap" className="conversation-actions">
        <AssignMenu
          assistantId={facts.assistantId}
          assigneeId={facts.assigneeId}
          me={me}
          onAssign={(operatorId) => act(actions.assign(operatorId))}
        />
        <SnoozeMenu
          opened={panel === 'snooze'}
          onOpen={open('snooze')}
          until={facts.snoozedUntil}
          onSnooze={(until) => act(actions.snooze(until))}
        />
        <TagMenu
          opened={panel === 'tag'}
          onOpen={open('tag')}
          assistantId={facts.assistantId}
          tags={facts.tags}
          onAdd={(tag) => act(actions.addTag(tag))}
        />
        <Tooltip label="Details">
          <ActionIcon
            className="not-wide"
            variant="subtle"
            color="gray"
            size="lg"
            aria-label="Details"
            onClick={onDetails}
          >
            <Icon name="info" />
          </ActionIcon>
        </Tooltip>
        <More {...props} />
        <Main {...props} />
      </Group>
    </header>
  );
};
