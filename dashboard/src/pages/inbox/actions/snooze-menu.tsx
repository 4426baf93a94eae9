import { Button, Stack, TextInput } from '@mantine/core';
import { useState } from 'react';
import { onSubmit } from '../../../parts/form.tsx';
import { useOpenConversation } from '../open-conversation.ts';
import { asLocalInput, snoozeTimes } from './snooze-times.ts';
import { ActionPanel } from './action-panel.tsx';

const HOUR = 3_600_000;
const short = new Intl.DateTimeFormat('en-GB', { weekday: 'short', hour: '2-digit', minute: '2-digit' });

const Choices = ({ until, onSnooze }: { until: string | null; onSnooze: (until: Date | null) => void }) => {
  const [typed, setTyped] = useState(() => asLocalInput(new Date(Date.now() + HOUR)));
  const chosen = new Date(typed);
  const isLater = chosen.getTime() > Date.now();
  return (
    <Stack gap={4}>
      {snoozeTimes().map(({ label, until: time }) => (
        <Button
          key={label}
          variant="subtle"
          color="gray"
          justify="space-between"
          rightSection={<span className="dim">{short.format(time)}</span>}
          onClick={() => onSnooze(time)}
        >
          {label}
        </Button>
      ))}
      <form onSubmit={onSubmit(() => isLater && onSnooze(chosen))}>
        <Stack gap={6} mt={4}>
          <TextInput
            type="datetime-local"
            size="xs"
            label="Until"
            value={typed}
            error={!isLater && 'Choose a later time.'}
            onChange={(event) => setTyped(event.currentTarget.value)}
          />
          <Button type="submit" size="xs" variant="default" disabled={!isLater}>
            Snooze until then
          </Button>
        </Stack>
      </form>
      {until !== null && (
        <Button variant="subtle" onClick={() => onSnooze(null)}>
          End the snooze
        </Button>
      )}
    </Stack>
  );
};

type Props = { opened: boolean; onOpen: (opened: boolean) => void };

/** Takes a conversation out of the list until a time. A message of the visitor ends the snooze. */
export const SnoozeMenu = ({ opened, onOpen }: Props) => {
  const { facts, actions, act } = useOpenConversation();
  return (
    <ActionPanel label="Snooze" shortcut="s" icon="clock" title="Snooze" opened={opened} onOpen={onOpen}>
      <Choices
        until={facts.snoozedUntil}
        onSnooze={(until) => {
          onOpen(false);
          act(actions.snooze(until));
        }}
      />
    </ActionPanel>
  );
};
