import { Checkbox, Text } from '@mantine/core';
import { useState } from 'react';
import { useLocation } from 'wouter';
import { at, call } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { Notice } from '../../parts/notice.tsx';
import { useChange } from '../../query.ts';
import type { Delivery, Started } from '../../types.ts';
import { addressOf } from './rows.tsx';

type Props = { id: string; delivery: Delivery; opened: boolean; onClose: () => void };

/** Sending once more is the one thing here that can reach a customer twice: it says so, and wants to be told twice. */
export const Resend = ({ id, delivery, opened, onClose }: Props) => {
  const [, go] = useLocation();
  const [known, setKnown] = useState(false);
  const risky = delivery.resend?.risk === 'may_double';
  const resend = useChange({
    run: () =>
      call<Started>('POST', at`/deliveries/${delivery.deliveryId}/resend`, {
        body: { number: delivery.resend?.number, ...(risky && { mayDouble: known }) },
      }),
    touches: ['/assistants/', '/deliveries/'],
    done: 'It is being sent once more.',
    quiet: true,
    after: ({ deliveryId }) => {
      onClose();
      go(addressOf(id, deliveryId));
    },
  });
  return (
    <FormDialog
      title="Send this event once more?"
      opened={opened}
      onClose={onClose}
      onSend={() => resend.mutate()}
      action="Resend event"
      busy={resend.isPending}
      problem={resend.error}
      fields={[]}
      disabled={risky && !known}
      danger={risky}
    >
      <Text size="sm">
        It goes to the endpoint as it is now, with the same event id and the header{' '}
        <code className="mono">X-Factory-Redelivery: true</code>, outside the order of its conversation.
      </Text>
      {risky ? (
        <>
          <Notice tone="warn">
            The receiver may have this event already. If it does not look at the event id, it will count it twice.
          </Notice>
          <Checkbox
            label="I know that the receiver may get this event twice"
            checked={known}
            onChange={(event) => setKnown(event.currentTarget.checked)}
          />
        </>
      ) : (
        <Text size="sm" c="dimmed">
          The receiver never got it, so nothing can be counted twice.
        </Text>
      )}
    </FormDialog>
  );
};
