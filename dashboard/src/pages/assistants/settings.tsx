import { Button, Group, NativeSelect, Stack, TagsInput, Textarea, TextInput } from '@mantine/core';
import { at, call } from '../../api.ts';
import { FormProblem, onSubmit, useFields } from '../../parts/form.tsx';
import { Facts, Page, Section } from '../../parts/page.tsx';
import { Value } from '../../parts/code.tsx';
import { Shown } from '../../parts/states.tsx';
import { When } from '../../parts/when.tsx';
import { SESSION, useChange, useRead } from '../../query.ts';
import type { Assistant } from '../../types.ts';
import { Meaning } from '../knowledge/meaning.tsx';
import { EngineForm } from './engine-form.tsx';

const GUARDS = [
  { value: 'flag', label: 'Answer, and note it' },
  { value: 'refuse', label: 'Refuse to answer' },
  { value: 'off', label: 'Do nothing' },
];

const fieldsOf = ({ name, instructions, languages, holdingText, threshold, guard, ...rest }: Assistant) => ({
  name,
  instructions,
  languages,
  holdingText: holdingText ?? '',
  threshold: threshold === null ? '' : String(threshold),
  dedupeWindowSeconds: String(rest.dedupeWindowSeconds),
  guard: guard as string,
  allowedLinks: rest.allowedLinks,
});
type Fields = ReturnType<typeof fieldsOf>;

const numberOf = (text: string): number | string =>
  text.trim() === '' || Number.isNaN(Number(text)) ? text : Number(text);

const toBody = (fields: Fields) => ({
  ...fields,
  holdingText: fields.holdingText.trim() === '' ? null : fields.holdingText,
  threshold: fields.threshold.trim() === '' ? null : numberOf(fields.threshold),
  dedupeWindowSeconds: numberOf(fields.dedupeWindowSeconds),
});

/** Only what this person changed: what somebody else saves meanwhile stays. */
const changesOf = (fields: Fields, before: Fields) => {
  const body = toBody(fields);
  const names = Object.keys(body) as (keyof Fields)[];
  return Object.fromEntries(
    names.flatMap((name) =>
      JSON.stringify(fields[name]) === JSON.stringify(before[name]) ? [] : [[name, body[name]]],
    ),
  );
};

const GeneralForm = ({ assistant }: { assistant: Assistant }) => {
  const path = at`/assistants/${assistant.assistantId}`;
  const save = useChange({
    run: (fields: Fields) => call<Assistant>('PATCH', path, { body: changesOf(fields, fieldsOf(assistant)) }),
    touches: ['/assistants', SESSION],
    done: 'Saved.',
    quiet: true,
    after: (saved) => form.reset(fieldsOf(saved)),
  });
  const form = useFields(fieldsOf(assistant), save.error);
  const changed = JSON.stringify(form.values) !== JSON.stringify(fieldsOf(assistant));
  return (
    <form onSubmit={onSubmit(() => save.mutate(form.values))} noValidate>
      <Stack gap="md" maw={640}>
        <FormProblem problem={save.error} fields={form.names} />
        <TextInput label="Name" maxLength={100} {...form.text('name')} />
        <Textarea
          label="Instructions"
          description="How it should speak and what it must not do. For an engine that writes its own replies."
          autosize
          minRows={3}
          maxRows={14}
          {...form.text('instructions')}
        />
        <TagsInput
          label="Languages"
          description="Language tags such as en or pt-BR, the first one preferred. None: whatever visitors speak."
          placeholder={form.values.languages.length === 0 ? 'en' : ''}
          {...form.pick('languages')}
        />
        <Textarea
          label="Holding text"
          description="Said once when a person takes over. Empty: a friendly sentence in the visitor’s language."
          autosize
          minRows={2}
          {...form.text('holdingText')}
        />
        <NativeSelect
          label="Messages that try to turn it"
          description="Such as “forget your instructions”."
          data={GUARDS}
          {...form.text('guard')}
        />
        <TagsInput
          label="Hosts that replies may link to"
          description="Beside those that its knowledge links to. For an engine that writes its own replies."
          {...form.pick('allowedLinks')}
        />
        <Group grow align="flex-start">
          <TextInput
            label="Threshold"
            description="0 to 1. Empty: the default."
            inputMode="decimal"
            {...form.text('threshold')}
          />
          <TextInput
            label="Repeat window, seconds"
            description="0 to 600. Then “yes” is new."
            inputMode="numeric"
            {...form.text('dedupeWindowSeconds')}
          />
        </Group>
        <Button type="submit" loading={save.isPending} disabled={!changed} className="self-start">
          Save changes
        </Button>
      </Stack>
    </form>
  );
};

const Settings = ({ id }: { id: string }) => {
  const read = useRead<Assistant>(at`/assistants/${id}`);
  return (
    <Page title="Settings">
      <Shown read={read}>
        {(assistant) => (
          <>
            <Section title="General">
              <GeneralForm assistant={assistant} />
            </Section>
            <Section
              title="Engine"
              description={
                <>
                  What writes the replies. Try it after a change: the page is a click away.
                  <Meaning id={id} />
                </>
              }
            >
              <EngineForm assistant={assistant} />
            </Section>
            <Section title="About">
              <Facts
                facts={{
                  'Assistant id': <Value value={assistant.assistantId} label="assistant id" />,
                  Made: <When at={assistant.createdAt} exact />,
                }}
              />
            </Section>
          </>
        )}
      </Shown>
    </Page>
  );
};

export default Settings;
