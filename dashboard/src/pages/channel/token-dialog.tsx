import { Button, Checkbox, Group, TextInput } from '@mantine/core';
import { call } from '../../api.ts';
import { CopyButton } from '../../parts/copy.tsx';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { Notice } from '../../parts/notice.tsx';
import { useChange } from '../../query.ts';
import type { Channel } from '../../types.ts';

const BYTES = 24;

const randomToken = (): string => {
  const bytes = crypto.getRandomValues(new Uint8Array(BYTES));
  const text = btoa(String.fromCharCode(...bytes));
  return `vt_${text.replaceAll('+', '-').replaceAll('/', '_')}`;
};

type Props = { path: string; channel: Channel; onClose: () => void };

const wordsFor = ({ connected, open }: Channel) => {
  if (!connected) return { title: 'Connect the channel', action: 'Connect', done: 'The channel is connected.' };
  return open
    ? { title: 'Set a verify token', action: 'Set token', done: 'The token is set.' }
    : { title: 'Replace the verify token', action: 'Replace token', done: 'The token is replaced.' };
};

/**
 * Connects a channel. The person must give a token or explicitly choose an open channel, so that no channel is open by
 * mistake.
 */
export const TokenDialog = ({ path, channel, onClose }: Props) => {
  const { title, action, done } = wordsFor(channel);
  const save = useChange({
    run: ({ token, open }: { token: string; open: boolean }) =>
      call<Channel>('PATCH', path, { body: { connected: true, token: open ? null : token } }),
    invalidates: ['/assistants'],
    done,
    quiet: true,
    after: onClose,
  });
  const form = useFields({ token: '', open: false }, save.error);
  const { token, open } = form.values;
  return (
    <FormDialog
      title={title}
      opened
      onClose={onClose}
      onSend={() => save.mutate(form.values)}
      action={action}
      change={save}
      fields={form.names}
      disabled={token === '' && !open}
      danger={open}
    >
      {!open && (
        <>
          <TextInput
            label="Verify token"
            description="The caller sends it with every request. Only a hash is stored, so copy the token now."
            classNames={{ input: 'mono' }}
            autoComplete="off"
            spellCheck={false}
            data-autofocus
            {...form.text('token')}
          />
          <Group gap="xs">
            <Button variant="default" size="xs" onClick={() => form.set('token', randomToken())}>
              Generate
            </Button>
            {token !== '' && <CopyButton value={token} label="Copy the token" />}
          </Group>
        </>
      )}
      {!channel.connected && (
        <Checkbox
          label="Leave it open to anyone who knows the address"
          checked={open}
          onChange={(event) => form.set('open', event.currentTarget.checked)}
        />
      )}
      {open && (
        <Notice tone="warn">
          Anyone who knows a session_id can continue that conversation. Use this only in closed networks.
        </Notice>
      )}
    </FormDialog>
  );
};
