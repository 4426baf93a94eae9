import { UnstyledButton } from '@mantine/core';
import { useState } from 'react';
import { Status } from './status.tsx';

const EVERY_MS = 2_500;

/** Lets a person pause automatic updates of a list. */
export const useLive = () => {
  const [on, setOn] = useState(true);
  return { on, every: on ? EVERY_MS : (false as const), toggle: () => setOn(!on) };
};

export const Live = ({ live, failed }: { live: ReturnType<typeof useLive>; failed: boolean }) => (
  <UnstyledButton className="live" onClick={live.toggle} title={live.on ? 'Pause updates' : 'Resume updates'}>
    {live.on ? (
      <Status tone={failed ? 'warn' : 'good'}>{failed ? 'Trying again' : 'Live'}</Status>
    ) : (
      <Status tone="calm">Paused</Status>
    )}
  </UnstyledButton>
);
