import { Button, Group, Text } from '@mantine/core';
import { useState } from 'react';
import { at, call } from '../../api.ts';
import { Code } from '../../parts/code.tsx';
import { useConfirm } from '../../parts/confirm.tsx';
import { Notice } from '../../parts/notice.tsx';
import { Page, Section } from '../../parts/page.tsx';
import { type Secret, SecretDialog } from '../../parts/secret.tsx';
import { Shown } from '../../parts/states.tsx';
import { When } from '../../parts/when.tsx';
import { useChange, useRead } from '../../query.ts';
import type { ChannelAddress, Channel as ChannelType } from '../../types.ts';
import { ChannelFacts, type Dialog } from './channel-facts.tsx';
import { LastCalls } from './last-calls.tsx';
import { LimitDialog } from './limit-dialog.tsx';
import { TokenDialog } from './token-dialog.tsx';

const sampleFor = ({ path, open }: ChannelType): string =>
  [
    `curl ${window.location.origin}${path} \\`,
    ...(open ? [] : [`  -H "Authorization: Bearer $VERIFY_TOKEN" \\`]),
    `  -H 'Content-Type: application/json' \\`,
    `  -d '{"session_id":"visitor-42","message":"Hello"}'`,
  ].join('\n');

const useChannelChanges = (path: string) => {
  const invalidates = ['/assistants'];
  const take = useChange({
    run: () => call<ChannelType>('PATCH', path, { body: { connected: false } }),
    invalidates,
    done: 'The channel is disconnected.',
  });
  const clear = useChange({
    run: () => call<ChannelType>('DELETE', `${path}/token`),
    invalidates,
    done: 'The channel is open now.',
  });
  return { take, clear };
};

/** A second address, for tools that cannot send the verify token. */
const SecretAddress = ({ path, channel }: { path: string; channel: ChannelType }) => {
  const [secret, setSecret] = useState<Secret | null>(null);
  const { dialog, ask } = useConfirm();
  const invalidates = ['/assistants'];
  const make = useChange({
    run: () => call<ChannelAddress>('POST', `${path}/secret-address`),
    invalidates,
    after: ({ secretPath }) =>
      setSecret({
        title: 'Secret address',
        label: 'Secret address',
        value: `${window.location.origin}${secretPath}`,
        note: 'Anyone who knows it can send messages, and logs of proxies may contain it. Use it only for tools that cannot send a header.',
      }),
  });
  const remove = useChange({
    run: () => call<ChannelType>('DELETE', `${path}/secret-address`),
    invalidates,
    done: 'The secret address is removed.',
  });
  const made = channel.secretAddress;
  const askMake = () =>
    ask({
      title: 'Make a new secret address?',
      body: 'The present one stops working within a second.',
      action: 'Make a new address',
      onConfirm: () => make.mutate(),
    });
  const askRemove = () =>
    ask({
      title: 'Remove the secret address?',
      body: 'Requests to it are refused within a second.',
      action: 'Remove address',
      danger: true,
      onConfirm: () => remove.mutate(),
    });
  return (
    <Group gap="xs">
      <span>
        {made ? (
          <>
            Made <When at={made.createdAt} />
          </>
        ) : (
          'None'
        )}
      </span>
      <Button
        variant="default"
        size="compact-sm"
        loading={make.isPending}
        onClick={made ? askMake : () => make.mutate()}
      >
        {made ? 'Rotate address…' : 'Make an address'}
      </Button>
      {made && (
        <Button variant="default" size="compact-sm" onClick={askRemove}>
          Remove address…
        </Button>
      )}
      <SecretDialog secret={secret} onClose={() => setSecret(null)} />
      {dialog}
    </Group>
  );
};

const Channel = ({ id }: { id: string }) => {
  const path = at`/assistants/${id}/channel`;
  const read = useRead<ChannelType>(path);
  const [dialogOf, setDialogOf] = useState<Dialog>(null);
  const { dialog, ask } = useConfirm();
  const { take, clear } = useChannelChanges(path);
  const channel = read.data;
  const close = () => setDialogOf(null);

  const askTake = () =>
    ask({
      title: 'Disconnect the channel?',
      body: 'Requests to its address get 404. The verify token and the secret address are deleted.',
      action: 'Disconnect',
      danger: true,
      onConfirm: () => take.mutate(),
    });
  const askClear = () =>
    ask({
      title: 'Open the channel to everyone?',
      body: 'Without a token, anyone who knows the address can post to it. Anyone who knows a session_id can continue that conversation.',
      action: 'Clear the token',
      danger: true,
      onConfirm: () => clear.mutate(),
    });

  return (
    <Page
      title="Channel"
      description="Another system posts messages to this address and gets the assistant’s replies."
      actions={
        channel &&
        (channel.connected ? (
          <Button variant="default" onClick={askTake} loading={take.isPending}>
            Disconnect…
          </Button>
        ) : (
          <Button onClick={() => setDialogOf('token')}>Connect</Button>
        ))
      }
    >
      <Shown read={read} rows={3}>
        {(one) => (
          <>
            {one.warning !== null && (
              <Notice
                tone="warn"
                title="This channel is open"
                actions={
                  <Button size="xs" variant="default" onClick={() => setDialogOf('token')}>
                    Set a token…
                  </Button>
                }
              >
                Anyone who knows a session_id can continue that conversation. Set a verify token to prevent this.
              </Notice>
            )}
            <Section>
              <ChannelFacts
                channel={one}
                onDialog={setDialogOf}
                onClear={askClear}
                secretAddress={<SecretAddress path={path} channel={one} />}
              />
            </Section>
            {one.connected ? (
              <Section title="Sample request">
                <Code text={sampleFor(one)} label="sample request" />
              </Section>
            ) : (
              <Text size="sm" c="dimmed">
                The address answers with 404 until you connect the channel.
              </Text>
            )}
            <LastCalls id={id} />
            {dialogOf === 'token' && <TokenDialog path={path} channel={one} onClose={close} />}
            {dialogOf === 'limit' && <LimitDialog path={path} channel={one} onClose={close} />}
          </>
        )}
      </Shown>
      {dialog}
    </Page>
  );
};

export default Channel;
