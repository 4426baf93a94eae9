import { ActionIcon, Group, Tooltip } from '@mantine/core';
import { Icon } from '../../parts/icon.tsx';
import { Status } from '../../parts/status.tsx';
import type { Me } from '../../types.ts';
import type { actionsOn } from './actions/actions.ts';
import { AssignMenu } from './actions/assign-menu.tsx';
import type { Act } from './actions/change.ts';
import { SnoozeMenu } from './actions/snooze-menu.tsx';
import { MoreActions, StateButtons } from './actions/state-buttons.tsx';
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
        <MoreActions {...props} />
        <StateButtons {...props} />
      </Group>
    </header>
  );
};
