import { NativeSelect, Text } from '@mantine/core';
import { at, call } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { useChange } from '../../query.ts';
import type { EndpointSecret } from '../../types.ts';

export const OVERLAPS = [
  { value: '0', label: 'None: the old one stops working now' },
  { value: '1', label: '1 hour' },
  { value: '24', label: '1 day' },
  { value: '72', label: '3 days' },
  { value: '168', label: '7 days' },
];

type Props = { endpointId: string; opened: boolean; onClose: () => void; onMade: (made: EndpointSecret) => void };

export const Rotate = ({ endpointId, opened, onClose, onMade }: Props) => {
  const rotate = useChange({
    run: (overlapHours: number) =>
      call<EndpointSecret>('POST', at`/endpoints/${endpointId}/rotate`, { body: { overlapHours } }),
    invalidates: ['/endpoints/', '/assistants/'],
    quiet: true,
    after: onMade,
  });
  const form = useFields({ overlapHours: '24' }, rotate.error);
  const none = form.values.overlapHours === '0';
  return (
    <FormDialog
      title="Rotate the signing secret"
      opened={opened}
      onClose={onClose}
      onSend={() => rotate.mutate(Number(form.values.overlapHours))}
      action="Rotate secret"
      change={rotate}
      fields={form.names}
      danger={none}
    >
      <NativeSelect label="Overlap" data={OVERLAPS} data-autofocus {...form.text('overlapHours')} />
      <Text size="sm" c="dimmed">
        {none
          ? 'From now on, events are signed with the new secret only. Your server refuses them until it has that secret.'
          : 'During the overlap, every event has two signatures, one for each secret. Your server can use either.'}
      </Text>
    </FormDialog>
  );
};
