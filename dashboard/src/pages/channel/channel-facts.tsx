import { Button, Group } from '@mantine/core';
import type { ReactNode } from 'react';
import { Value } from '../../parts/code.tsx';
import { Facts } from '../../parts/page.tsx';
import { Status } from '../../parts/status.tsx';
import type { Channel as ChannelType } from '../../types.ts';

const State = ({ channel }: { channel: ChannelType }) => {
  if (!channel.connected) return <Status tone="calm">Not connected</Status>;
  return channel.open ? (
    <Status tone="warn">Connected, open to everyone</Status>
  ) : (
    <Status tone="good">Connected</Status>
  );
};

export type Dialog = 'token' | 'limit' | null;

export const ChannelFacts = ({
  channel,
  onDialog,
  onClear,
  secretAddress,
}: {
  channel: ChannelType;
  onDialog: (dialog: Dialog) => void;
  onClear: () => void;
  secretAddress: ReactNode;
}) => (
  <Facts
    facts={{
      State: <State channel={channel} />,
      Address: <Value value={`${window.location.origin}${channel.path}`} label="address" />,
      ...(channel.connected && {
        'Verify token': (
          <Group gap="xs">
            <span>{channel.open ? 'None' : 'Set'}</span>
            <Button variant="default" size="compact-sm" onClick={() => onDialog('token')}>
              {channel.open ? 'Set a token…' : 'Replace…'}
            </Button>
            {!channel.open && (
              <Button variant="default" size="compact-sm" onClick={onClear}>
                Clear…
              </Button>
            )}
          </Group>
        ),
        'Secret address': secretAddress,
        Limit: (
          <Group gap="xs">
            <span className="num">{channel.limitPerMinute} requests per minute</span>
            <Button variant="default" size="compact-sm" onClick={() => onDialog('limit')}>
              Change…
            </Button>
          </Group>
        ),
      }),
    }}
  />
);
