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

/** The dialog for a resend. It warns and asks for a second confirmation if the customer may get the event twice. */
export const Resend = ({ id, delivery, opened, onClose }: Props) => {
  const [, go] = useLocation();
  const [known, setKnown] = useState(false);
  const risky = delivery.resend?.risk === 'may_double';
  const resend = useChange({
    run: () =>
      call<Started>('POST', at`/deliveries/${delivery.deliveryId}/resend`, {
        body: { number: delivery.resend?.number, ...(risky && { mayDouble: known }) },
      }),
    invalidates: ['/assistants/', '/deliveries/'],
    done: 'The event is being sent again.',
    quiet: true,
    after: ({ deliveryId }) => {
      onClose();
      go(addressOf(id, deliveryId));
    },
  });
  return (
    <FormDialog
      title="Send this event again?"
      opened={opened}
      onClose={onClose}
      onSend={() => resend.mutate()}
      action="Resend event"
      change={resend}
      disabled={risky && !known}
      danger={risky}
    >
      <Text size="sm">
        It is sent to the endpoint’s current URL, outside the order of its conversation, with the same event id and the
        header <code className="mono">X-Factory-Redelivery: true</code>.
      </Text>
      {risky ? (
        <>
          <Notice tone="warn">
            The receiver may already have this event. If it does not check event ids, it will process the event twice.
          </Notice>
          <Checkbox
            label="I understand that the receiver may get this event twice"
            checked={known}
            onChange={(event) => setKnown(event.currentTarget.checked)}
          />
        </>
      ) : (
        <Text size="sm" c="dimmed">
          The receiver never got this event, so it cannot process it twice.
        </Text>
      )}
    </FormDialog>
  );
};
