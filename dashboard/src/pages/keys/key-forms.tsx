import { NativeSelect, TextInput } from '@mantine/core';
import { at, call } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { useChange } from '../../query.ts';
import type { ApiKey, NewApiKey } from '../../types.ts';
import { numberOrNull } from '../assistants/settings/hours-fields.ts';
import { OVERLAPS } from '../webhooks/rotate.tsx';

type Props = { path: string; opened: boolean; onClose: () => void; onMade: (made: NewApiKey) => void };

const BLANK = { name: '', limitPerMinute: '60', turnsPerMonth: '' };
type Fields = typeof BLANK;

const toBody = ({ name, limitPerMinute, turnsPerMonth }: Fields) => ({
  name,
  limitPerMinute: Number(limitPerMinute),
  turnsPerMonth: numberOrNull(turnsPerMonth),
});

const KeyFields = ({ form }: { form: ReturnType<typeof useFields<Fields>> }) => (
  <>
    <TextInput
      label="Name"
      description="Who will use it, such as “Shop server”."
      data-autofocus
      maxLength={100}
      {...form.text('name')}
    />
    <TextInput
      label="Requests per minute"
      description="Further requests get 429 until the minute ends."
      inputMode="numeric"
      {...form.text('limitPerMinute')}
    />
    <TextInput
      label="New messages per month"
      description="Further ones get 429 until the month ends. Leave empty for no quota."
      inputMode="numeric"
      {...form.text('turnsPerMonth')}
    />
  </>
);

export const NewKey = ({ path, opened, onClose, onMade }: Props) => {
  const create = useChange({
    run: (fields: Fields) => call<NewApiKey>('POST', path, { body: toBody(fields) }),
    invalidates: ['/assistants/'],
    quiet: true,
    after: (made) => {
      form.reset(BLANK);
      onMade(made);
    },
  });
  const form = useFields(BLANK, create.error);
  return (
    <FormDialog
      title="Create an API key"
      opened={opened}
      onClose={onClose}
      onSend={() => create.mutate(form.values)}
      action="Create key"
      change={create}
      fields={form.names}
      disabled={form.values.name.trim() === ''}
    >
      <KeyFields form={form} />
    </FormDialog>
  );
};

export const EditKey = ({ one, onClose }: { one: ApiKey; onClose: () => void }) => {
  const update = useChange({
    run: (fields: Fields) => call<ApiKey>('PATCH', at`/keys/${one.keyId}`, { body: toBody(fields) }),
    invalidates: ['/assistants/'],
    done: 'The key is saved.',
    quiet: true,
    after: onClose,
  });
  const { name, limitPerMinute, turnsPerMonth } = one;
  const before = { name, limitPerMinute: String(limitPerMinute), turnsPerMonth: String(turnsPerMonth ?? '') };
  const form = useFields(before, update.error);
  return (
    <FormDialog
      title="Change name or limits"
      opened
      onClose={onClose}
      onSend={() => update.mutate(form.values)}
      action="Save"
      change={update}
      fields={form.names}
      disabled={form.values.name.trim() === ''}
    >
      <KeyFields form={form} />
    </FormDialog>
  );
};

type RotateProps = { one: ApiKey; onClose: () => void; onMade: (made: NewApiKey) => void };

export const RotateKey = ({ one, onClose, onMade }: RotateProps) => {
  const rotate = useChange({
    run: (overlapHours: number) => call<NewApiKey>('POST', at`/keys/${one.keyId}/rotate`, { body: { overlapHours } }),
    invalidates: ['/assistants/'],
    quiet: true,
    after: onMade,
  });
  const form = useFields({ overlapHours: '0' }, rotate.error);
  return (
    <FormDialog
      title={`Rotate “${one.name}”?`}
      opened
      onClose={onClose}
      onSend={() => rotate.mutate(Number(form.values.overlapHours))}
      action="Rotate key"
      change={rotate}
      fields={form.names}
    >
      <NativeSelect
        label="Overlap"
        description="You get a new key with the same name. Until the overlap ends, the old one works too."
        data={OVERLAPS}
        data-autofocus
        {...form.text('overlapHours')}
      />
    </FormDialog>
  );
};
