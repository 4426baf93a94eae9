import { Button, Checkbox, Group, Progress, Stack, Text, TextInput } from '@mantine/core';
import { useState } from 'react';
import { at, call } from '../../api.ts';
import { useConfirm } from '../../parts/confirm.tsx';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { Notice } from '../../parts/notice.tsx';
import { Section } from '../../parts/page.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { Status, type Tone } from '../../parts/status.tsx';
import { dateAndTime } from '../../parts/when.tsx';
import { useChange, useRead } from '../../query.ts';
import type { Recoveries, Recovery, RecoveryStart } from '../../types.ts';
import { isFinal, shownOutcome } from '../deliveries/outcome.tsx';

const LOOK_EVERY_MS = 2_000;
const HOUR_MS = 3_600_000;
const STATES: Record<Recovery['state'], { words: string; tone: Tone }> = {
  running: { words: 'Running', tone: 'busy' },
  paused: { words: 'Paused', tone: 'warn' },
  done: { words: 'Done', tone: 'good' },
  cancelled: { words: 'Cancelled', tone: 'calm' },
};

const counted = (count: number, one: string): string =>
  `${count.toLocaleString('en')} ${count === 1 ? one : `${one}s`}`;

/** The value of a `datetime-local` input, in the browser's time zone. */
const localTime = (time: Date): string =>
  new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

const isoOf = (local: string): string | undefined => {
  const time = new Date(local);
  return local === '' || Number.isNaN(time.getTime()) ? undefined : time.toISOString();
};

type Fields = { from: string; to: string; rejected: boolean; unknown: boolean };

const bodyOf = ({ from, to, rejected, unknown }: Fields, dryRun: boolean) => ({
  from: isoOf(from) ?? '',
  ...(to !== '' && { to: isoOf(to) ?? '' }),
  outcomes: ['not_sent', ...(rejected ? ['rejected'] : []), ...(unknown ? ['unknown'] : [])],
  dryRun,
});

const listed = (counts: Record<string, number>): string =>
  Object.entries(counts)
    .filter(([, count]) => count > 0)
    .map(
      ([one, count]) =>
        `${count.toLocaleString('en')} ${shownOutcome(one as keyof Recovery['sent']).words.toLowerCase()}`,
    )
    .join(', ');

const wordsOf = ({ events, conversations, oldest, byOutcome }: RecoveryStart): string =>
  oldest === null
    ? 'There is nothing to send again.'
    : `${counted(events, 'event')} of ${counted(conversations, 'conversation')}: ${listed(byOutcome)}. The oldest: ${dateAndTime(oldest)}.`;

type Props = { endpointId: string; onClose: () => void };

/** Counts what an endpoint missed, then sends it again. */
export const RecoverDialog = ({ endpointId, onClose }: Props) => {
  const path = at`/endpoints/${endpointId}/recoveries`;
  const [found, setFound] = useState<RecoveryStart | null>(null);
  const look = useChange({
    run: (fields: Fields) => call<RecoveryStart>('POST', path, { body: bodyOf(fields, true) }),
    invalidates: [],
    quiet: true,
    after: setFound,
  });
  const start = useChange({
    run: (fields: Fields) => call<RecoveryStart>('POST', path, { body: bodyOf(fields, false) }),
    invalidates: ['/endpoints/', '/assistants/'],
    done: 'The recovery has begun.',
    quiet: true,
    after: onClose,
  });
  const change = found === null ? look : start;
  const from = localTime(new Date(Date.now() - 24 * HOUR_MS));
  const form = useFields<Fields>({ from, to: '', rejected: false, unknown: false }, change.error);
  const risky = form.values.rejected || form.values.unknown;
  const set = <Name extends keyof Fields>(name: Name, value: Fields[Name]): void => {
    setFound(null); // it was counted for other fields
    form.set(name, value);
  };
  const time = (name: 'from' | 'to') => ({
    ...form.text(name),
    miw: 220, // on a phone one is below the other
    onChange: (event: { currentTarget: { value: string } }) => set(name, event.currentTarget.value),
  });
  return (
    <FormDialog
      title="Recover missed events"
      opened
      onClose={onClose}
      onSend={() => change.mutate(form.values)}
      size="lg"
      action={found === null ? 'Count events' : `Send ${counted(found.events, 'event')} again`}
      change={change}
      fields={form.names}
      disabled={form.values.from === '' || found?.events === 0}
      danger={found !== null && risky}
    >
      <Text size="sm">
        Events that your server did not get are sent again, in the order of each conversation and before newer events of
        it, with the same event id.
      </Text>
      <Group grow preventGrowOverflow={false} align="flex-start">
        <TextInput type="datetime-local" label="Failed from" data-autofocus {...time('from')} />
        <TextInput
          type="datetime-local"
          label="Until"
          description="Empty: now"
          inputWrapperOrder={['label', 'input', 'description', 'error']}
          {...time('to')}
        />
      </Group>
      <Stack gap="xs" role="group" aria-label="Which events">
        <Checkbox label="Not sent" description="Your server never got them." checked disabled />
        <Checkbox
          label="Rejected"
          description="Your server got them and did not answer 2xx."
          checked={form.values.rejected}
          onChange={(event) => set('rejected', event.currentTarget.checked)}
        />
        <Checkbox
          label="Unknown"
          description="Your server may have got them."
          checked={form.values.unknown}
          onChange={(event) => set('unknown', event.currentTarget.checked)}
        />
      </Stack>
      {risky && <Notice tone="warn">Your server may get events twice. It should check event ids.</Notice>}
      <div role="status" aria-live="polite">
        {found && (
          <Text size="sm" fw={600}>
            {wordsOf(found)}
          </Text>
        )}
      </div>
    </FormDialog>
  );
};

const sentOf = ({ sent }: Recovery): number =>
  Object.entries(sent).reduce((sum, [outcome, count]) => sum + (isFinal(outcome as keyof typeof sent) ? count : 0), 0);

const Row = ({ recovery }: { recovery: Recovery }) => {
  const { recoveryId, from, to, state, events, sent } = recovery;
  const { dialog, ask } = useConfirm();
  const change = useChange({
    run: (step: 'pause' | 'resume' | 'cancel') => call<Recovery>('POST', at`/recoveries/${recoveryId}/${step}`),
    invalidates: ['/endpoints/'],
  });
  const isOver = state === 'done' || state === 'cancelled';
  const askCancel = () =>
    ask({
      title: 'Cancel this recovery?',
      body: 'What it has not sent stays as it is. Another recovery can send it later.',
      action: 'Cancel recovery',
      danger: true,
      onConfirm: () => change.mutate('cancel'),
    });
  const outcomes = listed(sent);
  const words = `${sentOf(recovery).toLocaleString('en')} of ${counted(events, 'event')} sent again`;
  return (
    <li className="recovery">
      <Group justify="space-between" gap="sm">
        <Group gap="sm">
          <Status tone={STATES[state].tone}>{STATES[state].words}</Status>
          <span className="dim">{`${dateAndTime(from)} – ${dateAndTime(to)}`}</span>
        </Group>
        {!isOver && (
          <Group gap="xs">
            <Button
              size="compact-sm"
              variant="default"
              loading={change.isPending}
              onClick={() => change.mutate(state === 'paused' ? 'resume' : 'pause')}
            >
              {state === 'paused' ? 'Resume' : 'Pause'}
            </Button>
            <Button size="compact-sm" variant="default" onClick={askCancel}>
              Cancel…
            </Button>
          </Group>
        )}
      </Group>
      {!isOver && <Progress value={events === 0 ? 100 : (100 * sentOf(recovery)) / events} aria-label={words} mt={8} />}
      <Text size="sm" c="dimmed" mt={4}>
        {outcomes === '' ? words : `${words}: ${outcomes}`}
      </Text>
      {dialog}
    </li>
  );
};

const isAnyOpen = (read: Recoveries | undefined): boolean =>
  read?.recoveries.some(({ state }) => state === 'running' || state === 'paused') ?? false;

/** The recoveries of an endpoint with their progress, polled while one is not over. */
export const RecoverySection = ({ endpointId, onRecover }: { endpointId: string; onRecover: () => void }) => {
  const read = useRead<Recoveries>(at`/endpoints/${endpointId}/recoveries`, {
    every: (known) => (isAnyOpen(known) ? LOOK_EVERY_MS : false),
  });
  return (
    <Section
      title="Recoveries"
      description="After your server was down, send what it missed again."
      flush
      actions={
        <Button variant="default" size="xs" onClick={onRecover} disabled={isAnyOpen(read.data)}>
          Recover missed events…
        </Button>
      }
    >
      <Shown read={read}>
        {({ recoveries }) =>
          recoveries.length === 0 ? (
            <Empty icon="refresh" title="No recovery yet">
              Nothing was sent again so far.
            </Empty>
          ) : (
            <ul className="rows" aria-label="Recoveries">
              {recoveries.slice(0, 5).map((one) => (
                <Row key={one.recoveryId} recovery={one} />
              ))}
            </ul>
          )
        }
      </Shown>
    </Section>
  );
};
