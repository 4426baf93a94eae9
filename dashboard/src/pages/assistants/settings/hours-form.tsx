import { Button, Checkbox, NativeSelect, Radio, Stack, TextInput } from '@mantine/core';
import { at, call } from '../../../api.ts';
import { FormProblem, onSubmit, useFields } from '../../../parts/form.tsx';
import { useChange } from '../../../query.ts';
import type { Assistant } from '../../../types.ts';
import { hoursFieldsOf, type HoursFields, timeZonesWith, hoursBodyOf } from './hours-fields.ts';
import { WeekEditor } from './week-editor.tsx';

const IF_NOT_TAKEN = [
  { value: 'remind', label: 'Remind all operators' },
  { value: 'hand_back', label: 'Hand it back to the assistant, and tell the visitor' },
  { value: 'stay', label: 'Do nothing' },
];

type FormProps = { form: ReturnType<typeof useFields<HoursFields>> };

const Hours = ({ form }: FormProps) => {
  const { open, timeZone, week } = form.values;
  return (
    <>
      <Radio.Group
        label="People answer"
        description="Outside these times, the holding text also says when somebody answers."
        value={open}
        onChange={(value) => form.set('open', value)}
        {...form.errorOf('openingHours' as keyof HoursFields)}
      >
        <Stack gap="xs" mt={6}>
          <Radio value="always" label="At any time" />
          <Radio value="hours" label="At certain times" />
        </Stack>
      </Radio.Group>
      {open === 'hours' && (
        <>
          <NativeSelect label="Time zone" data={timeZonesWith(timeZone)} {...form.text('timeZone')} />
          <WeekEditor week={week} onChange={(value) => form.set('week', value)} />
        </>
      )}
    </>
  );
};

const TakeBy = ({ form }: FormProps) => (
  <>
    <TextInput
      label="Take an escalation within, minutes"
      description="Somebody must be assigned or answer in this time. Only opening hours count. Leave empty for no limit."
      inputMode="numeric"
      maw={320}
      {...form.text('takeWithinMinutes')}
    />
    {form.values.takeWithinMinutes.trim() !== '' && (
      <NativeSelect label="If nobody takes it in time" data={IF_NOT_TAKEN} maw={460} {...form.text('ifNotTaken')} />
    )}
  </>
);

/** Opening hours, and what happens to an escalation that nobody takes. */
export const HoursForm = ({ assistant }: { assistant: Assistant }) => {
  const before = hoursFieldsOf(assistant);
  const save = useChange({
    run: (fields: HoursFields) =>
      call<Assistant>('PATCH', at`/assistants/${assistant.assistantId}`, { body: hoursBodyOf(fields) }),
    invalidates: ['/assistants'],
    done: 'Saved.',
    quiet: true,
    after: (saved) => form.reset(hoursFieldsOf(saved)),
  });
  const form = useFields(before, save.error);
  const changed = JSON.stringify(hoursBodyOf(form.values)) !== JSON.stringify(hoursBodyOf(before));
  return (
    <form onSubmit={onSubmit(() => save.mutate(form.values))} noValidate>
      <Stack gap="md" maw={640}>
        <FormProblem problem={save.error} fields={['openingHours', 'takeWithinMinutes', 'ifNotTaken']} />
        <Hours form={form} />
        <TakeBy form={form} />
        <Checkbox
          label="Hand a conversation to a person when the visitor leaves contact details"
          description="The message is still answered."
          checked={form.values.contactsEscalate}
          onChange={({ currentTarget }) => form.set('contactsEscalate', currentTarget.checked)}
        />
        <Button type="submit" loading={save.isPending} disabled={!changed} className="self-start">
          Save opening hours
        </Button>
      </Stack>
    </form>
  );
};
