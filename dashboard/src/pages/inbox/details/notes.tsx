import { ActionIcon } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { at, call } from '../../../api.ts';
import { Icon } from '../../../parts/icon.tsx';
import { When } from '../../../parts/when.tsx';
import { useChange } from '../../../query.ts';
import { useAgents } from '../agents.ts';
import { useOpenConversation } from '../open-conversation.ts';
import { refreshThread } from '../thread/thread.ts';
import { Part } from './section.tsx';

/** The internal notes of a conversation. They are written where replies are written. */
export const Notes = () => {
  const { facts, me } = useOpenConversation();
  const { conversationId, assistantId, notes } = facts;
  const client = useQueryClient();
  const agents = useAgents(assistantId, notes.length > 0);
  const remove = useChange({
    run: (noteId: string) => call<void>('DELETE', at`/conversations/${conversationId}/notes/${noteId}`),
    done: 'The note is removed.',
    after: () => void refreshThread(client, conversationId),
  });
  const nameOf = (id: string): string =>
    id === me.operatorId ? 'You' : (agents.find(({ operatorId }) => operatorId === id)?.email ?? 'An operator');
  if (notes.length === 0) return null;
  return (
    <Part title="Notes">
      <ul className="details-list">
        {notes.map(({ noteId, operatorId, content, createdAt }) => (
          <li key={noteId}>
            <span className="grow">
              <span className="keep break block">{content}</span>
              <span className="dim">
                {nameOf(operatorId)}, <When at={createdAt} />
              </span>
            </span>
            {(me.role === 'owner' || operatorId === me.operatorId) && (
              <ActionIcon
                variant="subtle"
                color="gray"
                size="sm"
                aria-label={`Remove the note “${content.slice(0, 40)}”`}
                onClick={() => remove.mutate(noteId)}
              >
                <Icon name="trash" size={15} />
              </ActionIcon>
            )}
          </li>
        ))}
      </ul>
    </Part>
  );
};
