import { Button, NativeSelect, Stack, TextInput } from '@mantine/core';
import { at, call } from '../../../api.ts';
import { Allowed } from '../../../parts/allowance.tsx';
import { useConfirm } from '../../../parts/confirm.tsx';
import { FormProblem, onSubmit, useFields } from '../../../parts/form.tsx';
import { useChange, useRead } from '../../../query.ts';
import type { Assistant, Limits } from '../../../types.ts';
import { numberOrNull } from './hours-fields.ts';

const IF_USED_UP = [
  { value: 'retrieval', label: 'Answer without the language model' },
  { value: 'hand_over', label: 'Hand the conversation over to a person' },
];

const textOf = (limit: number | null): string => (limit === null ? '' : String(limit));

const fieldsOf = ({ sessionLimitPerMinute, turnsPerMonth, tokensPerDay, ifTokensUsedUp }: Assistant) => ({
  sessionLimitPerMinute: String(sessionLimitPerMinute),
  turnsPerMonth: textOf(turnsPerMonth),
  tokensPerDay: textOf(tokensPerDay),
  ifTokensUsedUp: ifTokensUsedUp as string,
});
type Fields = ReturnType<typeof fieldsOf>;

const bodyOf = ({ ifTokensUsedUp, ...limits }: Fields) => ({
  sessionLimitPerMinute: numberOrNull(limits.sessionLimitPerMinute),
  turnsPerMonth: numberOrNull(limits.turnsPerMonth),
  tokensPerDay: numberOrNull(limits.tokensPerDay),
  ifTokensUsedUp,
});

/** Limits of sessions, the quota of turns and the budget of tokens, with what is used of them. */
export const LimitsForm = ({ assistant }: { assistant: Assistant }) => {
  const path = at`/assistants/${assistant.assistantId}`;
  const { data } = useRead<Limits>(`${path}/limits`);
  const before = fieldsOf(assistant);
  const save = useChange({
    run: (fields: Fields) => call<Assistant>('PATCH', path, { body: bodyOf(fields) }),
    invalidates: ['/assistants'],
    done: 'Saved.',
    quiet: true,
    after: (saved) => form.reset(fieldsOf(saved)),
  });
  const form = useFields(before, save.error);
  const changed = JSON.stringify(bodyOf(form.values)) !== JSON.stringify(bodyOf(before));
  return (
    <form onSubmit={onSubmit(() => save.mutate(form.values))} noValidate>
      <Stack gap="md" maw={640}>
        <FormProblem problem={save.error} fields={form.names} />
        <TextInput
          label="Messages per minute of one visitor"
          description="Further messages of the session get 429 until the minute ends."
          inputMode="numeric"
          maw={320}
          {...form.text('sessionLimitPerMinute')}
        />
        <div>
          <TextInput
            label="New messages per month"
            description="By all keys and the channel. Further ones get 429 until the month ends. Leave empty for no quota."
            inputMode="numeric"
            {...form.text('turnsPerMonth')}
          />
          {data?.turns && <Allowed one={data.turns} of="messages" />}
        </div>
        <div>
          <TextInput
            label="Tokens of the language model per day"
            description="A call that does not fit is not made. Leave empty for no budget."
            inputMode="numeric"
            {...form.text('tokensPerDay')}
          />
          {data?.tokens && <Allowed one={data.tokens} of="tokens" />}
        </div>
        {form.values.tokensPerDay.trim() !== '' && (
          <NativeSelect label="When they are used up" data={IF_USED_UP} maw={460} {...form.text('ifTokensUsedUp')} />
        )}
        <Button type="submit" loading={save.isPending} disabled={!changed} className="self-start">
          Save limits
        </Button>
      </Stack>
    </form>
  );
};

/** How long conversations are kept. */
export const KeptForm = ({ assistant }: { assistant: Assistant }) => {
  const { dialog, ask } = useConfirm();
  const before = textOf(assistant.keepDays);
  const save = useChange({
    run: (keepDays: ReturnType<typeof numberOrNull>) =>
      call<Assistant>('PATCH', at`/assistants/${assistant.assistantId}`, { body: { keepDays } }),
    invalidates: ['/assistants'],
    done: 'Saved.',
    quiet: true,
    after: (saved) => form.reset({ keepDays: textOf(saved.keepDays) }),
  });
  const form = useFields({ keepDays: before }, save.error);
  const keepDays = numberOrNull(form.values.keepDays);
  const submit = (): void => {
    const erasesMore = typeof keepDays === 'number' && keepDays < (assistant.keepDays ?? Number.POSITIVE_INFINITY);
    if (!erasesMore) return save.mutate(keepDays);
    ask({
      title: 'Erase old conversations?',
      body: `Every conversation in which nothing has changed for ${keepDays} days is erased for good, from now on.`,
      action: 'Erase them',
      danger: true,
      onConfirm: () => save.mutate(keepDays),
    });
  };
  return (
    <form onSubmit={onSubmit(submit)} noValidate>
      <Stack gap="md" maw={640}>
        <FormProblem problem={save.error} fields={form.names} />
        <TextInput
          label="Days without a change"
          description="After them a conversation is erased, with its messages and notes. Leave empty to keep all."
          inputMode="numeric"
          maw={460}
          {...form.text('keepDays')}
        />
        <Button
          type="submit"
          loading={save.isPending}
          disabled={form.values.keepDays === before}
          className="self-start"
        >
          Save retention
        </Button>
      </Stack>
      {dialog}
    </form>
  );
};
