import { Group, Tooltip } from '@mantine/core';
import { IconButton } from '../../parts/icon-button.tsx';
import { Status } from '../../parts/status.tsx';
import { AssignMenu } from './actions/assign-menu.tsx';
import { SnoozeMenu } from './actions/snooze-menu.tsx';
import { MoreActions, StateButtons } from './actions/state-buttons.tsx';
import { TagMenu } from './actions/tag-menu.tsx';
import { Waiting } from './list/waiting.tsx';
import { useOpenConversation } from './open-conversation.ts';
import { PresentOperators } from './present.tsx';
import { STATUS_TONES, STATUS_WORDS } from './words.ts';

export type Panel = 'tag' | 'snooze' | null;

type Props = {
  panel: Panel;
  onPanel: (panel: Panel) => void;
  onBack: () => void;
  onDetails: () => void;
};

/** Whose conversation it is, and what can be done with it. */
export const ConversationHead = ({ panel, onPanel, onBack, onDetails }: Props) => {
  const { facts } = useOpenConversation();
  const open = (name: Panel) => (opened: boolean) => onPanel(opened ? name : null);
  return (
    <header className="conversation-head">
      <IconButton className="only-narrow" label="Back to the list" icon="left" onClick={onBack} />
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
        <AssignMenu />
        <SnoozeMenu opened={panel === 'snooze'} onOpen={open('snooze')} />
        <TagMenu opened={panel === 'tag'} onOpen={open('tag')} />
        <Tooltip label="Details">
          <IconButton className="not-wide" label="Details" icon="info" onClick={onDetails} />
        </Tooltip>
        <MoreActions />
        <StateButtons />
      </Group>
    </header>
  );
};
