import { Button, Stack, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Link } from 'wouter';
import { at, call, withQuery } from '../../../api.ts';
import { FormDialog } from '../../../parts/dialog.tsx';
import { Icon } from '../../../parts/icon.tsx';
import { useChange } from '../../../query.ts';
import { forgetConversation } from '../erased.ts';
import { useOpenConversation } from '../open-conversation.ts';
import { Part } from './section.tsx';

const WORD = 'erase';

type EraseProps = { opened: boolean; onClose: () => void; onErased: () => void };

const EraseDialog = ({ opened, onClose, onErased }: EraseProps) => {
  const { conversationId } = useOpenConversation().facts;
  const client = useQueryClient();
  const [typed, setTyped] = useState('');
  const close = (): void => {
    setTyped('');
    onClose();
  };
  const erase = useChange({
    run: () => call<void>('DELETE', at`/conversations/${conversationId}`),
    done: 'The conversation is erased.',
    quiet: true,
    after: () => {
      close();
      onErased();
      forgetConversation(client, conversationId);
    },
  });
  return (
    <FormDialog
      title="Erase this conversation"
      opened={opened}
      onClose={close}
      onSend={() => erase.mutate()}
      action="Erase for good"
      change={erase}
      disabled={typed.trim().toLowerCase() !== WORD}
      danger
    >
      <Stack gap="xs">
        <p className="erase-words">
          All messages, notes and events of this conversation are deleted. This cannot be undone. Events that were
          delivered stay with their receivers.
        </p>
        <TextInput
          data-autofocus
          label={`Type “${WORD}” to confirm`}
          value={typed}
          onChange={(event) => setTyped(event.currentTarget.value)}
        />
      </Stack>
    </FormDialog>
  );
};

/** What can be done with the conversation as a whole: export it, and for owners erase it. */
export const WholeConversation = ({ onErased }: { onErased: () => void }) => {
  const { facts, me } = useOpenConversation();
  const [erasing, setErasing] = useState(false);
  return (
    <Part title="Data">
      <div className="details-buttons">
        <Button
          component="a"
          href={`/operator/v1${at`/conversations/${facts.conversationId}/export`}`}
          download={`conversation-${facts.conversationId}.json`}
          variant="default"
          size="xs"
        >
          Export as JSON
        </Button>
        {me.role === 'owner' && (
          <Button
            component={Link}
            to={withQuery('/on-call', { find: facts.conversationId })}
            variant="default"
            size="xs"
          >
            Turns and events
          </Button>
        )}
        {me.role === 'owner' && (
          <Button
            variant="default"
            size="xs"
            className="danger"
            leftSection={<Icon name="trash" size={15} />}
            onClick={() => setErasing(true)}
          >
            Erase…
          </Button>
        )}
      </div>
      <EraseDialog opened={erasing} onClose={() => setErasing(false)} onErased={onErased} />
    </Part>
  );
};
